package drivertest

import (
	"crypto/rand"
	"fmt"
	"slices"
	"sync"

	"github.com/holdfast-go/holdfast/driver"
)

// tickets makes the tickets of one client, and keeps those that may have a place.
type tickets struct {
	w    *stage
	uuid string
	mu   sync.Mutex
	n    int
	made []*driver.Ticket
}

// newUUID returns a random UUID, as a client has one.
func newUUID() string {
	var b [16]byte
	rand.Read(b[:])
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// ticket makes a ticket whose TTL outlasts a case on a slow store.
func (ts *tickets) ticket(name string, units, limit int64) *driver.Ticket {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	ts.n++
	t := &driver.Ticket{
		ID:    fmt.Sprintf("%s:%d", ts.uuid, ts.n),
		Name:  ts.w.name(name),
		Units: units,
		Limit: limit,
		TTL:   ts.w.longTTL(),
	}
	t.Meta = "meta of " + t.ID
	ts.made = append(ts.made, t)
	return t
}

// joinsAnew gives a ticket that the store has dropped another ID, as the core does.
func (ts *tickets) joinsAnew(t *driver.Ticket) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	ts.n++
	t.ID, t.DriverData = fmt.Sprintf("%s:%d", ts.uuid, ts.n), nil
	t.Meta = "meta of " + t.ID
}

// shortLived gives a ticket the harness's TTL, for cases that await its expiry.
func (ts *tickets) shortLived(t *driver.Ticket) *driver.Ticket {
	t.TTL = ts.w.h.TTL
	return t
}

// withOwner gives a ticket a named owner.
func (ts *tickets) withOwner(owner string, t *driver.Ticket) *driver.Ticket {
	t.Owner = owner
	return t
}

func (ts *tickets) mutex(name string) *driver.Ticket  { return ts.ticket(name, 1, 1) }
func (ts *tickets) reader(name string) *driver.Ticket { return ts.ticket(name, 1, driver.RWLimit) }
func (ts *tickets) writer(name string) *driver.Ticket {
	return ts.ticket(name, driver.RWLimit, driver.RWLimit)
}

// waitersOfEachKind returns tickets of one client, one of each kind that may
// wait behind a mutex, each on a queue of its own.
func (ts *tickets) waitersOfEachKind(part string) []*driver.Ticket {
	plain, withMinToken := ts.mutex(part+" behind mutex"), ts.mutex(part+" behind floor mutex")
	withMinToken.MinToken = 7
	all := []*driver.Ticket{plain, withMinToken}
	if ts.w.traits.Owner {
		owned := ts.mutex(part + " behind owner mutex")
		owned.Owner = "owner"
		all = append(all, owned)
	}
	for _, t := range all {
		ts.shortLived(t)
	}
	return all
}

// all returns the tickets that may still have a place.
func (ts *tickets) all() []*driver.Ticket {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	return slices.Clone(ts.made)
}

// drop drops a ticket that is gone, so that the end of the case has less to do.
func (ts *tickets) drop(t *driver.Ticket) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if i := slices.Index(ts.made, t); i >= 0 {
		ts.made = slices.Delete(ts.made, i, i+1)
	}
}
