package drivertest

import (
	"context"
	"fmt"
	"iter"
	"sync"

	"github.com/holdfast-go/holdfast/driver"
)

// Strict wraps d in checks of its caller: it fails t when a call breaks one of
// the guarantees that package driver gives to drivers, and names the guarantee.
// It is for tests of the core, and of this suite.
//
// A wrapper between the caller and the driver, such as package faults, breaks
// guarantees by its nature: put Strict in front of it.
func Strict(t T, d driver.Driver) driver.Driver {
	return &strict{d: d, t: t, tickets: make(map[string]*strictTicket)}
}

type strict struct {
	d driver.Driver
	t T

	mu       sync.Mutex
	tickets  map[string]*strictTicket
	watching bool
	asked    bool // Watch was called
	watched  bool // and has succeeded
	closed   bool
}

// strictTicket is the record of a ticket's calls.
type strictTicket struct {
	first       driver.Ticket // as it was at its first Join, without Aux
	joining     bool
	joinPending bool // a Join of it went unanswered
	left        bool // without JoinPending
}

func (s *strict) violation(rule, format string, args ...any) {
	s.t.Helper()
	s.t.Errorf("the caller breaks %s: %s", rule, fmt.Sprintf(format, args...))
}

func (s *strict) ticket(t *driver.Ticket) *strictTicket {
	k := s.tickets[t.ID]
	if k == nil {
		k = &strictTicket{first: *t}
		k.first.DriverData = nil
		s.tickets[t.ID] = k
	}
	now := *t
	now.DriverData = nil
	if now.Replaces == nil {
		k.first.Replaces = nil // forgotten, once it has left
	}
	if now != k.first {
		s.violation("Ticket", "it has changed, or there are two of one id: %+v was %+v", now, k.first)
	}
	return k
}

// checkTicket checks the guarantees for every ticket (Driver 9).
func (s *strict) checkTicket(t *driver.Ticket) {
	tr := s.d.Traits()
	switch {
	case t.ID == "":
		s.violation("Ticket", "it has no id")
	case driver.CheckName(t.Name) != nil:
		s.violation("Driver 9", "%v", driver.CheckName(t.Name))
	case driver.CheckOwner(t.Owner) != nil:
		s.violation("Driver 9", "%v", driver.CheckOwner(t.Owner))
	case driver.CheckMeta(t.Meta) != nil:
		s.violation("Driver 9", "%v", driver.CheckMeta(t.Meta))
	case t.TTL < tr.MinTTL || t.TTL > tr.MaxTTL:
		s.violation("Driver 9", "a TTL of %v is not within %v and %v", t.TTL, tr.MinTTL, tr.MaxTTL)
	case t.Units <= 0 || t.Units > t.Limit:
		s.violation("Driver 9", "%d units of %d", t.Units, t.Limit)
	case t.Limit > 1 && !tr.Shared:
		s.violation("Traits", "a limit of %d, and the driver is not Shared", t.Limit)
	case t.Owner != "" && !tr.Owner:
		s.violation("Join 7", "owner %q, and the driver has no Owner", t.Owner)
	}
}

// reachesStore reports whether a call reaches the driver's store.
func (s *strict) reachesStore(ctx context.Context) bool { return !s.closed && ctx.Err() == nil }

// Join implements [driver.Driver].
func (s *strict) Join(ctx context.Context, t *driver.Ticket, wait bool) (driver.Status, error) {
	s.mu.Lock()
	k := s.ticket(t)
	s.checkTicket(t)
	sent := s.reachesStore(ctx)
	switch {
	case !sent:
	case k.joining:
		s.violation("Driver 8", "%s is in two Joins at once", t.ID)
	case k.left:
		s.violation("Join 2", "%s joins after it left without Unsure", t.ID)
	case wait && !s.asked:
		s.violation("Watch 5", "%s joins with wait=true before Watch was called", t.ID)
	}
	if r := t.Replaces; r != nil && sent {
		if r.Name != t.Name {
			s.violation("Ticket", "%s of line %q replaces %s of line %q", t.ID, t.Name, r.ID, r.Name)
		}
		if old := s.tickets[r.ID]; old != nil {
			if old.joinPending {
				s.violation("Join 8", "%s replaces %s, of which a Join went unanswered", t.ID, r.ID)
			}
			old.left = true
		}
	}
	k.joining = k.joining || sent
	s.mu.Unlock()
	p, err := s.d.Join(ctx, t, wait)
	s.mu.Lock()
	defer s.mu.Unlock()
	if sent {
		k.joining = false
	}
	if err != nil && driver.ClassOf(err) == driver.Unknown {
		k.joinPending = true
	}
	return p, err
}

// checkLane checks that a batch has one lane (Renew 6).
func (s *strict) checkLane(refs []driver.Ref) {
	lane := s.d.Traits().Lane
	for _, r := range refs {
		if lane != nil && lane(r.Name) != lane(refs[0].Name) {
			s.violation("Renew 6", "%q and %q have different lanes", refs[0].Name, r.Name)
		}
	}
}

// Renew implements [driver.Driver].
func (s *strict) Renew(ctx context.Context, refs []driver.Ref) ([]driver.Status, error) {
	s.mu.Lock()
	s.checkLane(refs)
	for _, r := range refs {
		s.ticket(r.Ticket)
	}
	s.mu.Unlock()
	return s.d.Renew(ctx, refs)
}

// Leave implements [driver.Driver].
func (s *strict) Leave(ctx context.Context, refs []driver.Ref) ([]driver.Status, error) {
	s.mu.Lock()
	s.checkLane(refs)
	for _, r := range refs {
		k := s.ticket(r.Ticket)
		switch {
		case r.JoinPending || !s.reachesStore(ctx):
		case k.joining:
			s.violation("Driver 8", "%s leaves without Unsure while it joins", r.ID)
		case k.joinPending:
			s.violation("Leave 4", "%s leaves without Unsure, and a Join of it went unanswered", r.ID)
		default:
			k.left = true
		}
	}
	s.mu.Unlock()
	return s.d.Leave(ctx, refs)
}

// Watch implements [driver.Driver].
func (s *strict) Watch(ctx context.Context, notify func(string, driver.Status)) error {
	s.mu.Lock()
	if (s.watching || s.watched) && s.reachesStore(ctx) {
		s.violation("Watch 5", "Watch is called again, and it returned no error")
	}
	s.watching, s.asked = true, true
	s.mu.Unlock()
	err := s.d.Watch(ctx, notify)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watching, s.watched = false, s.watched || err == nil
	return err
}

// Close implements [driver.Driver].
func (s *strict) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	return s.d.Close()
}

// Traits implements [driver.Driver].
func (s *strict) Traits() driver.Traits { return s.d.Traits() }

// Inspect implements [driver.Driver].
func (s *strict) Inspect(ctx context.Context, name string) (driver.Queue, error) {
	return s.d.Inspect(ctx, name)
}

// Names implements [driver.Driver].
func (s *strict) Names(ctx context.Context, prefix string) iter.Seq2[string, error] {
	return s.d.Names(ctx, prefix)
}

// Break implements [driver.Driver].
func (s *strict) Break(ctx context.Context, name, ticketID string) error {
	return s.d.Break(ctx, name, ticketID)
}

// Mark implements [driver.Marker], when the driver does.
func (s *strict) Mark(ctx context.Context, name string) (driver.Mark, error) {
	m, ok := s.d.(driver.Marker)
	if !ok {
		return driver.Mark{}, driver.Errorf(driver.Refused, "the driver keeps no marks")
	}
	return m.Mark(ctx, name)
}

// SetMark implements [driver.Marker], when the driver does.
func (s *strict) SetMark(ctx context.Context, name string, m driver.Mark) error {
	if err := driver.CheckMark(m); err != nil {
		s.violation("SetMark 6", "%v", err)
	}
	d, ok := s.d.(driver.Marker)
	if !ok {
		return driver.Errorf(driver.Refused, "the driver keeps no marks")
	}
	return d.SetMark(ctx, name, m)
}
