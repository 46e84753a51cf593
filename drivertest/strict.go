package drivertest

import (
	"context"
	"fmt"
	"iter"
	"sync"

	"github.com/holdfast-go/holdfast/driver"
)

// Strict returns d behind a check of its caller: it fails t when a call breaks
// one of the guarantees that package driver gives to drivers, named in the
// failure. It is for tests of the core, and of this suite.
//
// What comes between the caller and the driver, such as package faults, breaks
// guarantees by its nature: Strict belongs before it.
func Strict(t T, d driver.Driver) driver.Driver {
	return &strict{d: d, t: t, tickets: make(map[string]*strictTicket)}
}

type strict struct {
	d driver.Driver
	t T

	mu       sync.Mutex
	tickets  map[string]*strictTicket
	watching bool
	watched  bool
	closed   bool
}

// A strictTicket is what its client has done with a ticket.
type strictTicket struct {
	first   driver.Ticket // as it was at its first Join, without Aux
	joining bool
	unsure  bool // a Join of it went unanswered
	left    bool // without Unsure
}

func (s *strict) breaks(rule, format string, args ...any) {
	s.t.Helper()
	s.t.Errorf("the caller breaks %s: %s", rule, fmt.Sprintf(format, args...))
}

func (s *strict) ticket(t *driver.Ticket) *strictTicket {
	k := s.tickets[t.ID]
	if k == nil {
		k = &strictTicket{first: *t}
		k.first.Aux = nil
		s.tickets[t.ID] = k
	}
	now := *t
	now.Aux = nil
	if now.Replaces == nil {
		k.first.Replaces = nil // forgotten, once it has left
	}
	if now != k.first {
		s.breaks("Ticket", "it has changed, or there are two of one id: %+v was %+v", now, k.first)
	}
	return k
}

// legal checks what is true of every ticket (Driver 9).
func (s *strict) legal(t *driver.Ticket) {
	tr := s.d.Traits()
	switch {
	case t.ID == "":
		s.breaks("Ticket", "it has no id")
	case driver.CheckName(t.Name) != nil:
		s.breaks("Driver 9", "%v", driver.CheckName(t.Name))
	case driver.CheckOwner(t.Owner) != nil:
		s.breaks("Driver 9", "%v", driver.CheckOwner(t.Owner))
	case driver.CheckMeta(t.Meta) != nil:
		s.breaks("Driver 9", "%v", driver.CheckMeta(t.Meta))
	case t.TTL < tr.MinTTL || t.TTL > tr.MaxTTL:
		s.breaks("Driver 9", "a TTL of %v is not within %v and %v", t.TTL, tr.MinTTL, tr.MaxTTL)
	case t.Units <= 0 || t.Units > t.Limit:
		s.breaks("Driver 9", "%d units of %d", t.Units, t.Limit)
	case t.Limit > 1 && !tr.Shared:
		s.breaks("Traits", "a limit of %d, and the driver is not Shared", t.Limit)
	case t.Owner != "" && !tr.Owner:
		s.breaks("Join 7", "owner %q, and the driver has no Owner", t.Owner)
	}
}

// sends says whether a call reaches the driver's store.
func (s *strict) sends(ctx context.Context) bool { return !s.closed && ctx.Err() == nil }

// Join implements [driver.Driver].
func (s *strict) Join(ctx context.Context, t *driver.Ticket, wait bool) (driver.Place, error) {
	s.mu.Lock()
	k := s.ticket(t)
	s.legal(t)
	sent := s.sends(ctx)
	switch {
	case !sent:
	case k.joining:
		s.breaks("Driver 8", "%s is in two Joins at once", t.ID)
	case k.left:
		s.breaks("Join 2", "%s joins after it left without Unsure", t.ID)
	case wait && !s.watched:
		s.breaks("Watch 5", "%s joins with wait=true before Watch has returned", t.ID)
	}
	if r := t.Replaces; r != nil && sent {
		if r.Name != t.Name {
			s.breaks("Ticket", "%s of line %q replaces %s of line %q", t.ID, t.Name, r.ID, r.Name)
		}
		if old := s.tickets[r.ID]; old != nil {
			if old.unsure {
				s.breaks("Join 8", "%s replaces %s, of which a Join went unanswered", t.ID, r.ID)
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
		k.unsure = true
	}
	return p, err
}

// lanes checks that a batch has one lane (Renew 6).
func (s *strict) lanes(refs []driver.Ref) {
	lane := s.d.Traits().Lane
	for _, r := range refs {
		if lane != nil && lane(r.Name) != lane(refs[0].Name) {
			s.breaks("Renew 6", "%q and %q have different lanes", refs[0].Name, r.Name)
		}
	}
}

// Renew implements [driver.Driver].
func (s *strict) Renew(ctx context.Context, refs []driver.Ref) ([]driver.Place, error) {
	s.mu.Lock()
	s.lanes(refs)
	for _, r := range refs {
		s.ticket(r.Ticket)
	}
	s.mu.Unlock()
	return s.d.Renew(ctx, refs)
}

// Leave implements [driver.Driver].
func (s *strict) Leave(ctx context.Context, refs []driver.Ref) ([]driver.Place, error) {
	s.mu.Lock()
	s.lanes(refs)
	for _, r := range refs {
		k := s.ticket(r.Ticket)
		switch {
		case r.Unsure || !s.sends(ctx):
		case k.joining:
			s.breaks("Driver 8", "%s leaves without Unsure while it joins", r.ID)
		case k.unsure:
			s.breaks("Leave 4", "%s leaves without Unsure, and a Join of it went unanswered", r.ID)
		default:
			k.left = true
		}
	}
	s.mu.Unlock()
	return s.d.Leave(ctx, refs)
}

// Watch implements [driver.Driver].
func (s *strict) Watch(ctx context.Context, moved func(string, driver.Place)) error {
	s.mu.Lock()
	if (s.watching || s.watched) && s.sends(ctx) {
		s.breaks("Watch 5", "Watch is called again, and it returned no error")
	}
	s.watching = true
	s.mu.Unlock()
	err := s.d.Watch(ctx, moved)
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
func (s *strict) Inspect(ctx context.Context, name string) (driver.Line, error) {
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
