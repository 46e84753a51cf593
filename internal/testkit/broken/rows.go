package broken

import "sync"

// LockRow locks the row of a queue, as another program does.
func (s *Store) LockRow() (release func()) {
	if !s.hasFlaw("one-row-all-names") {
		return func() {}
	}
	return sync.OnceFunc(s.Pause())
}

// Rows counts the queues of which the store keeps a record.
func (s *Store) Rows() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.queues {
		if s.hasFlaw("rows-stay") || len(l.tickets) > 0 {
			n++
		}
	}
	return n
}
