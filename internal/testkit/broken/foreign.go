package broken

// PutForeign puts another program's value into the queue of a name.
func (s *Store) PutForeign(name string) (remove func()) {
	set := func(there bool) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.queueOf(name).foreign = there
	}
	set(true)
	return func() { set(false) }
}
