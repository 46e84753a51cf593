package lockclient

import (
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// records holds what a driver knows of its tickets: the ids under which servers have them,
// and what answers and events said. Its mutex is the last one that is taken.
type records struct {
	client string // begins the ids of this driver

	mu     sync.Mutex
	prefix string // of the tickets' ids, up to the colon; empty until one is known
	// granted has the tokens of the tickets of which events, and no answers yet, say that
	// they hold.
	granted map[string]uint64
	// expected has the tickets of which events may say that they hold.
	expected map[string]*driver.Ticket
	// known has the records of the tickets that neither leave nor are gone.
	known map[string]*record
	// dropped are the last tickets that the driver has called gone, or that left before
	// their Join came: events about them come too late.
	dropped []string
}

// idOf returns the id at the servers of a ticket, whose id is "UUID:NUMBER".
func (s *records) idOf(ticketID string) (string, error) {
	prefix, number, ok := strings.Cut(ticketID, ":")
	digits := !strings.ContainsFunc(number, func(r rune) bool { return r < '0' || r > '9' })
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.prefix == "" {
		s.prefix = prefix
	}
	if !ok || !digits || len(number) == 0 || len(number) > 19 || prefix != s.prefix {
		return "", driver.Errorf(driver.Refused, "lockclient: the ticket's id is of another client")
	}
	return s.client + "." + number, nil
}

// ticketOf is the reverse of idOf; empty for an id of another client.
func (s *records) ticketOf(id string) string {
	number, ok := strings.CutPrefix(id, s.client+".")
	s.mu.Lock()
	defer s.mu.Unlock()
	if !ok || s.prefix == "" {
		return ""
	}
	return s.prefix + ":" + number
}

// record is the driver's knowledge of a ticket, in its DriverData. records.mu guards it.
type record struct {
	servers []string  // that have answered about it
	had     []string  // those of them that had it
	moved   bool      // another server may have a ticket of it: several answered, or an answer was missed
	token   uint64    // of the grant, as the servers write it; 0: not granted
	waits   bool      // a server has answered that it waits
	keeper  string    // the server whose answer so lasts longest: it keeps the place until then
	until   time.Time // when that ends
	pinned  bool      // a server has answered that no other one can go on
	leaving bool      // a release was sent
	left    bool      // and answered
}

// recordOf returns the record of a ticket. Nil: it never joined.
func recordOf(t *driver.Ticket) *record {
	r, _ := t.DriverData.(*record)
	return r
}

// note keeps what an answer about a ticket, or its absence, says. e is the answer's entry
// of that ticket.
func (s *records) note(r *record, a *answer, e *entry, sent time.Time, err error) {
	if r == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil || a == nil {
		class := driver.ClassOf(err)
		r.moved = r.moved || class == driver.Unknown
		return
	}
	if e.Resumable != nil {
		r.pinned = !*e.Resumable
	}
	if !slices.Contains(r.servers, a.Server) {
		r.servers = append(r.servers, a.Server)
	}
	if e.State != "" && !slices.Contains(r.had, a.Server) {
		r.had = append(r.had, a.Server)
	}
	if until := sent.Add(milliseconds(e.Left)); e.State == "waiting" && e.Left > 0 && until.After(r.until) {
		r.keeper, r.until = a.Server, until
	}
	r.moved = r.moved || a.missed || len(r.servers) > 1 || a.status >= http.StatusInternalServerError
}

// token returns the token of a ticket's grant, as an answer or, before any, an event told
// it; 0 if none did.
func (s *records) token(ticketID string, r *record) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tokenLocked(ticketID, r)
}

// tokenLocked is token with records.mu held.
func (s *records) tokenLocked(ticketID string, r *record) uint64 {
	if r.token != 0 {
		return r.token
	}
	return s.granted[ticketID]
}

// expect notes a ticket whose Join is sent.
func (s *records) expect(t *driver.Ticket) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expected[t.ID] = t
	s.known[t.ID] = recordOf(t)
}

// onHeld notes an event of a server by which a ticket holds, and returns the ticket. It
// returns nil if the event comes too late, or is about a hold that only another server can go
// on with. The event is enough if the claim on the place is that server's: another one may
// have told the client for how long its place is kept, and give its own ticket up sooner. It
// is not enough for a grant that needs a token of its own, see isHandedOn.
func (s *records) onHeld(ticketID string, token uint64, server string) (t *driver.Ticket, enough bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t = s.expected[ticketID]
	if t == nil || slices.Contains(s.dropped, ticketID) {
		return nil, false
	}
	r := recordOf(t)
	if r.pinned && r.keeper != "" && r.keeper != server {
		return nil, false // no other server can go on with that hold
	}
	s.granted[ticketID] = token
	enough = (r.keeper == "" || r.keeper == server) && !isHandedOn(t, token)
	if !enough {
		r.moved = true // another server may be asked to go on
	}
	return t, enough
}

// isAlone reports whether only one server can have a ticket, so that an event of its loss
// there says that the store has none.
func (s *records) isAlone(ticketID, server string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.known[ticketID]
	return r == nil || !r.moved && (r.keeper == "" || r.keeper == server)
}

// end forgets a ticket that leaves or is gone.
func (s *records) end(ticketID string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endLocked(ticketID)
}

// endLocked is end with records.mu held.
func (s *records) endLocked(ticketID string) {
	s.forgetLocked(ticketID)
	delete(s.known, ticketID)
}

// keeps reports whether the claim of a ticket's place lasts no longer than a server keeps
// it.
func (s *records) keeps(r *record, server string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return r.keeper == "" || r.keeper == server
}

// isKnown reports whether an answer has told that a ticket holds.
func (s *records) isKnown(r *record) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return r.token != 0
}

// maxDropped is the number of tickets of which late events are ignored.
const maxDropped = 256

// dropLocked notes that a ticket is gone, whatever events say.
func (s *records) dropLocked(ticketID string) {
	s.dropped = append(s.dropped, ticketID)
	if len(s.dropped) > maxDropped {
		s.dropped = slices.Clone(s.dropped[len(s.dropped)-maxDropped:])
	}
}

// hasLeft reports whether a ticket whose Join comes has left before: the Join changes
// nothing then (Join 2 of package driver).
func (s *records) hasLeft(ticketID string, r *record) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return r.leaving || slices.Contains(s.dropped, ticketID)
}

// isHandedOn reports whether a server handed a grant on between its own clients, as it
// does with permits, and the ticket needs a token of its own at the store.
func isHandedOn(t *driver.Ticket, token uint64) bool {
	return token&0xff != 0 && t.Exclusive()
}

// forgetLocked ends what events can say about a ticket: it holds by an answer, or is gone.
func (s *records) forgetLocked(ticketID string) {
	delete(s.granted, ticketID)
	delete(s.expected, ticketID)
}
