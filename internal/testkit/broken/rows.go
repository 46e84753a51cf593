package broken

import "sync"

// LockRow locks the row of a queue, as another program does.
func (s *Store) LockRow() (release func()) {
	if s.hasFlaw("one-row-all-names") {
		return sync.OnceFunc(s.Pause())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lockedRows++
	return sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.lockedRows--
	})
}

// Rows counts the queues of which the store keeps a record.
func (s *Store) Rows() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.hasFlaw("rows-stay") || s.hasFlaw("locked-row-keeps-all") && s.lockedRows > 0
	for _, l := range s.queues {
		if all || len(l.tickets) > 0 {
			n++
		}
	}
	return n
}
