// Package tombstone remembers which tickets are gone, for longer than a request
// of one can be under way.
package tombstone

import "time"

// Set has the ids of tickets that must not come back. It keeps each for at least
// Keep and forgets them in two generations, without a timer: while ids are added,
// none is kept for longer than two times Keep. It has no lock of its own.
type Set[ID comparable] struct {
	Keep time.Duration // must be set before Add

	young, old map[ID]struct{}
	turned     time.Time // when young began
}

// Add adds id.
func (s *Set[ID]) Add(id ID) {
	if now := time.Now(); s.young == nil || now.Sub(s.turned) > s.Keep {
		s.old, s.young, s.turned = s.young, make(map[ID]struct{}), now
	}
	s.young[id] = struct{}{}
}

// Has reports whether id is in the set.
func (s *Set[ID]) Has(id ID) bool {
	if _, ok := s.young[id]; ok {
		return true
	}
	_, ok := s.old[id]
	return ok
}
