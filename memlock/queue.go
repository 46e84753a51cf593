package memlock

import (
	"math"
	"slices"
	"sort"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// queue holds the places of one name.
type queue struct {
	name      string
	limit     int64 // of the tickets in it
	unitsHeld int64 // units of the places that hold
	lastToken uint64
	lastSeq   uint64
	places    []*place // by arrival; the first heldCount of them hold
	held      int
	nextCheck time.Duration // before this, no holding ticket has expired
	ids       map[string]*ticket
	owners    map[string]*place // of named owners
}

// place is an owner's share in a queue.
type place struct {
	seq      uint64
	owner    string
	units    int64
	held     bool
	token    uint64
	minToken uint64
	first    *ticket // the tickets in order of arrival; never none
	inline   ticket  // room for the first
	nextFree *place
}

type ticket struct {
	id     string
	meta   string
	ttl    time.Duration
	expiry time.Duration // on the store's clock
	driver *Driver       // the driver that joined it
	place  *place
	next   *ticket
}

const never = time.Duration(math.MaxInt64)

// fits reports whether the units find room beside the holders.
func (q *queue) fits(units int64) bool { return units <= q.limit-q.unitsHeld }

// indexOf returns the index of p.
func (q *queue) indexOf(p *place) int {
	return sort.Search(len(q.places), func(i int) bool { return q.places[i].seq >= p.seq })
}

// appendPlace appends a place.
func (q *queue) appendPlace(p *place) {
	q.lastSeq++
	p.seq = q.lastSeq
	q.places = append(q.places, p)
	if p.owner != "" {
		if q.owners == nil {
			q.owners = make(map[string]*place)
		}
		q.owners[p.owner] = p
	}
}

// removePlace removes the place at i, which has no tickets any more.
func (q *queue) removePlace(i int) {
	p := q.places[i]
	if p.owner != "" {
		delete(q.owners, p.owner)
	}
	if p.held {
		q.held--
		q.unitsHeld -= p.units
	}
	const few = 32
	if i == 0 && len(q.places) > few {
		// A long queue moves up by leaving its first element behind.
		q.places[0] = nil
		q.places = q.places[1:]
	} else {
		q.places = slices.Delete(q.places, i, i+1)
	}
	if len(q.places) == 0 && cap(q.places) > few {
		q.places = nil
		q.ids = make(map[string]*ticket)
		q.owners = nil
	}
}

// add gives the place another ticket.
func (p *place) add(t *ticket) {
	t.place = p
	at := &p.first
	for *at != nil {
		at = &(*at).next
	}
	*at = t
}

// lastExpiry returns when the place is dropped unless it is renewed.
func (p *place) lastExpiry() time.Duration {
	last := p.first.expiry
	for t := p.first.next; t != nil; t = t.next {
		last = max(last, t.expiry)
	}
	return last
}

// firstExpiry returns when the first of the place's tickets expires.
func (p *place) firstExpiry() time.Duration {
	first := p.first.expiry
	for t := p.first.next; t != nil; t = t.next {
		first = min(first, t.expiry)
	}
	return first
}

// holder returns the metadata of the first ticket that holds.
func (q *queue) holder() string {
	if q.held == 0 {
		return ""
	}
	return q.places[0].first.meta
}

// busy returns the answer to a ticket that must not wait.
func (q *queue) busy(now time.Duration) driver.Status {
	p := driver.Status{State: driver.Gone, Holder: q.holder()}
	if q.held > 0 {
		p.Recheck = q.places[0].lastExpiry() - now
	}
	return p
}

// recheck returns when the waiting place at i should be renewed early: when the
// store would drop the place before it or, for the first waiter, the earliest
// of all holders.
func (q *queue) recheck(i int, now time.Duration) time.Duration {
	const soon = time.Millisecond // 0 would mean that there is no need
	at := never
	if i > q.held {
		at = q.places[i-1].lastExpiry()
	} else if !q.fits(q.places[i].units) {
		for _, p := range q.places[:q.held] {
			at = min(at, p.lastExpiry())
		}
	} else {
		return soon
	}
	return max(at-now, soon)
}

// copyQueues returns a deep copy.
func copyQueues(from map[string]*queue) map[string]*queue {
	to := make(map[string]*queue, len(from))
	for name, q := range from {
		c := *q
		c.places = nil
		c.ids = make(map[string]*ticket)
		c.owners = nil
		for _, p := range q.places {
			q := *p
			q.first, q.inline, q.nextFree = nil, ticket{}, nil
			for t := p.first; t != nil; t = t.next {
				u := *t
				u.next = nil
				q.add(&u)
				c.ids[u.id] = &u
			}
			c.appendPlace(&q)
		}
		to[name] = &c
	}
	return to
}
