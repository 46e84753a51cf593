// Package tracker keeps a driver's knowledge of its tickets, without I/O. It has
// no lock, no goroutine and no timer: the driver's mutex guards it, and the
// driver tells it what it has sent and heard, and when.
package tracker

import (
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/tombstone"
)

// Ticket is the progress of one ticket at one store.
type Ticket struct {
	State     driver.State // 0 until it is known; it only moves forward
	Token     uint64       // of the grant
	Until     time.Time    // its time is over then, unless it is renewed
	MustLeave bool         // it expired, or was given up: nothing renews or grants it
}

// Reply records the answer to a Join that was sent at that time. A push may have
// come before the answer. Reply returns the status that is true now.
func (t *Ticket) Reply(p driver.Status, sent time.Time) driver.Status {
	if p.State < t.State {
		p.State, p.Token = t.State, t.Token
	}
	t.State, t.Token, t.Until = p.State, p.Token, sent.Add(p.Lease)
	return p
}

// Push records a state that the store reports, and reports whether that is news.
func (t *Ticket) Push(p driver.Status) bool {
	if p.State <= t.State {
		return false
	}
	if t.State = p.State; p.State == driver.Held {
		t.Token = p.Token
	}
	return true
}

// Renewed records the answer to a renewal that was sent at that time. It ignores
// an answer that a push has overtaken, and returns false.
func (t *Ticket) Renewed(p driver.Status, sent time.Time) bool {
	if t.State == driver.Gone || p.State < t.State {
		return false
	}
	if t.State = p.State; p.State != driver.Gone {
		t.Until = sent.Add(p.Lease)
	}
	if p.Token != 0 {
		t.Token = p.Token
	}
	return true
}

// Extend starts the ticket's time anew, for a lease from that time on. If its
// time is over, it must leave, and Extend returns false.
func (t *Ticket) Extend(from time.Time, lease time.Duration) bool {
	if t.MustLeave || t.Due(from) {
		return false
	}
	t.Until = from.Add(lease)
	return true
}

// Due reports whether the ticket's time is over. If so, it must leave.
func (t *Ticket) Due(now time.Time) bool {
	over := now.After(t.Until)
	t.MustLeave = t.MustLeave || over
	return over
}

// Left records that the store does not have the ticket any more.
func (t *Ticket) Left() { t.State, t.MustLeave = driver.Gone, true }

// Set has the tickets of a driver by their ids, as entries of the driver's own
// type, and the ids that must stay gone. Tombstones.Keep must be set.
type Set[K comparable, E any] struct {
	Tombstones tombstone.Set[K]

	entries map[K]E
}

// Find returns the entry of an id, or the zero value.
func (s *Set[K, E]) Find(id K) E { return s.entries[id] }

// Enter returns the entry of an id, or the one that enter makes. It returns
// false if there is none and the id must stay gone.
func (s *Set[K, E]) Enter(id K, enter func() E) (E, bool) {
	e, ok := s.entries[id]
	if !ok && !s.Gone(id) {
		if s.entries == nil {
			s.entries = make(map[K]E)
		}
		e, ok = enter(), true
		s.entries[id] = e
	}
	return e, ok
}

// Gone reports whether an id has no entry and must stay gone.
func (s *Set[K, E]) Gone(id K) bool {
	_, ok := s.entries[id]
	return !ok && s.Tombstones.Has(id)
}

// Forget removes the entry of an id. With tombstone, the id stays gone.
func (s *Set[K, E]) Forget(id K, tombstone bool) {
	delete(s.entries, id)
	if tombstone {
		s.Tombstones.Add(id)
	}
}
