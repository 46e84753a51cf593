package redlock

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/tracker"
)

// An entry is a ticket of this client, with its votes.
//
// The order of locks is turn, mu, cleaner.mu, and then Driver.mu or nodeSet.mu.
// The mutexes of estimate and contendedNames are taken under mu as well, and
// none under them. Two entries are never locked at once.
type entry struct {
	d     *Driver
	nodes *nodeSet
	t     *driver.Ticket
	turn  chan struct{} // holds a value while a goroutine tries to win the majority

	mu             sync.Mutex
	tracker.Ticket      // of the majority; while MustLeave, votes that come are given back
	leaving        bool // the core has given it up; once that is confirmed it is Gone
	seeking        bool // the goroutine of seekInBackgroundLocked is running
	votes          []vote
	home           int           // the node in whose queue it is, -1 for none
	nextID         int           // number of the next node's ticket, see idsPerEntry
	fails          int           // tries for the majority that failed in a row
	rewrites       int           // rounds that raised the votes' tokens
	grantMark      uint64        // the mark of the grant
	changed        chan struct{} // closed and replaced with every answer
	back           int           // votes that are being given back
}

// A vote is a node's ticket for an entry. The zero vote has no ticket.
type vote struct {
	tracker.Ticket                // at the node
	t              *driver.Ticket // nil for none
	old            *driver.Ticket // replaced by t, until the node has answered
	place          driver.Status
	waits          bool     // t may wait in the node's queue
	busy           bool     // a Join of t is under way
	request        *request // the last Join
	joinUnknown    bool     // a Join of t had no answer
	err            error
	leftAs         driver.State // the state that Leave found; 0 until it is confirmed
	leftBefore     bool         // an earlier Leave than the one under way has found it
	mark           uint64       // of the last answered request for the whole TTL, see Driver.marks
}

// idDigits is the number of digits that a node's ticket adds to the id;
// idsPerEntry is the number of such tickets that an entry may use before
// another entry with the same id could use them.
const (
	idDigits    = 8
	idsPerEntry = 64
)

// baseID returns the id of the ticket to which a node's ticket belongs.
func baseID(id string) string {
	cut := len(id) - idDigits
	if cut < 1 || strings.Trim(id[cut-1:], "0123456789") != "" {
		return id
	}
	return id[:cut]
}

// newTicketLocked makes the next ticket for a node. A ticket that is Gone stays
// Gone, so each try has an id of its own; the added digits keep the form of an
// id.
func (e *entry) newTicketLocked(ttl time.Duration, minToken uint64) *driver.Ticket {
	t := &driver.Ticket{
		ID:   fmt.Sprintf("%s%0*d", e.t.ID, idDigits, e.nextID%1e8),
		Name: e.t.Name, Units: 1, Limit: 1, TTL: ttl, Meta: e.t.Meta, MinToken: max(minToken, e.t.MinToken),
	}
	e.nextID++
	return t
}

// signalLocked wakes all goroutines that wait for a change.
func (e *entry) signalLocked() {
	close(e.changed)
	e.changed = make(chan struct{})
}

// holds reports whether a vote counts at this time.
func (v *vote) holds(now time.Time) bool {
	return v.State == driver.Held && !v.busy && now.Before(v.Until)
}

// tallyLocked counts the votes that are held, and those whose answers are
// outstanding, from nodes that are in time and from the others.
func (e *entry) tallyLocked(now time.Time) (held, inTime, late int) {
	for i := range e.votes {
		switch v := &e.votes[i]; {
		case v.holds(now):
			held++
		case v.busy && e.nodes.all[i].inTime():
			inTime++
		case v.busy:
			late++
		}
	}
	return held, inTime, late
}

// tokensHeldLocked returns the tokens of the votes that count.
func (e *entry) tokensHeldLocked(now time.Time) []uint64 {
	var ts []uint64
	for i := range e.votes {
		if v := &e.votes[i]; v.holds(now) {
			ts = append(ts, v.Token)
		}
	}
	return ts
}

// all reports whether is holds for all entries, each locked for it; nil ones are
// passed over.
func all(entries []*entry, is func(e *entry) bool) bool {
	for _, e := range entries {
		if e == nil {
			continue
		}
		e.mu.Lock()
		ok := is(e)
		e.mu.Unlock()
		if !ok {
			return false
		}
	}
	return true
}

// leaseEndLocked returns the time until which a majority of nodes keeps the
// entry.
func (e *entry) leaseEndLocked(quorum int) time.Time {
	var ends []time.Time
	for i := range e.votes {
		if v := &e.votes[i]; v.State == driver.Held && !v.busy {
			ends = append(ends, v.Until)
		}
	}
	if len(ends) < quorum {
		return time.Time{}
	}
	slices.SortFunc(ends, func(a, b time.Time) int { return b.Compare(a) })
	return ends[quorum-1]
}

func (e *entry) heldLocked(quorum int, sent time.Time) driver.Status {
	return driver.Status{State: driver.Held, Token: e.Token, Lease: e.leaseEndLocked(quorum).Sub(sent)}
}

// waitsLocked returns the status of an entry that waits at home. The number of
// tickets ahead is unknown: some may wait at other nodes, and the home's holder
// may itself be waiting.
func (e *entry) waitsLocked(home *vote, sent time.Time) driver.Status {
	p := home.place
	p.State, p.Token, p.Err, p.Ahead = driver.Waiting, 0, nil, -1
	p.Lease = home.Until.Sub(sent)
	return p
}

// goneLocked gives back all votes and answers Gone, for a Join without wait, or
// if the home does not have the ticket. It unlocks e.mu while it waits for the
// nodes.
func (e *entry) goneLocked(ctx context.Context, holder string) driver.Status {
	e.giveAllBackLocked(-1)
	e.Left()
	e.signalLocked()
	e.mu.Unlock()
	e.d.forget(e.t.ID, false)
	e.awaitReturned(ctx)
	e.mu.Lock()
	return driver.Status{State: driver.Gone, Holder: holder}
}

// endLocked makes an entry Gone for good.
func (e *entry) endLocked() {
	e.Left()
	e.giveAllBackLocked(-1)
	e.d.forget(e.t.ID, true)
	e.signalLocked()
}

// find returns the entry of a ticket, or nil.
func (d *Driver) find(id string) *entry {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.tickets.Find(id)
}

// enter returns the entry of a ticket, and makes it if there is none. It
// returns nil if the ticket must stay Gone.
func (d *Driver) enter(t *driver.Ticket) *entry {
	d.mu.Lock()
	defer d.mu.Unlock()
	e, _ := d.tickets.Enter(t.ID, func() *entry {
		d.serial = (d.serial + idsPerEntry) % 1e8
		return &entry{d: d, nodes: d.nodes, t: t, turn: make(chan struct{}, 1), votes: make([]vote, len(d.nodes.all)), home: -1, nextID: d.serial, changed: make(chan struct{})}
	})
	return e
}

// tombstoneTTL is the life of a tombstone: longer than any request is under
// way.
const tombstoneTTL = 5 * time.Minute

// forget drops an entry. With tombstone, the id gets one, so that it stays
// Gone.
func (d *Driver) forget(id string, tombstone bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.tickets.Forget(id, tombstone)
}
