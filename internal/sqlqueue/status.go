package sqlqueue

import (
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// minRecheck is the shortest Recheck, for a ticket that has nothing to wait
// for. A Recheck of 0 would mean that the ordinary renewal is enough.
const minRecheck = time.Millisecond

// countMax is the distance from the holders up to which the places before a waiting
// ticket are counted. Deep in a queue a renewal must not read all of it: thousands of
// waiters that each read thousands of places would leave the store no time for
// anything else.
const (
	countMax     = 256
	countMaxText = "256" // in statements
)

// distance returns the greatest possible number of waiting places before a place that
// is not counted: those given out since the holders' that are not granted, or all but
// its own if fewer are left. Places given up in between may be among them.
func (q *queueRow) distance(place int64) int64 { return min(place-q.turn, q.waiting) - 1 }

// status returns the status of t, whose TTL is ttl. It first drops expired
// tickets directly before t, so that Recheck refers to a living predecessor.
func (q *queue) status(t *ticket, ttl time.Duration) (driver.Status, error) {
	if t.place <= q.turn {
		return driver.Status{State: driver.Held, Token: uint64(t.token), Lease: ttl}, nil
	}
	p := driver.Status{State: driver.Waiting, Lease: ttl}
	at, first, err := q.predecessor(t)
	if err != nil {
		return p, err
	}
	before := int64(0)
	switch {
	case first:
	case t.seq == q.seq && t.place == t.seq: // it is the last place
		before = q.waiting - 1
	case t.place-q.turn > countMax:
		before = q.distance(t.place)
	default:
		if before, err = q.rows.number(q.t.count.with(q.key, q.turn, t.place)); err != nil {
			return p, err
		}
	}
	p.Ahead = int(q.held + before)
	if first {
		at = q.now
		if t.units > q.lim-q.used {
			if at, err = q.earliest(); err != nil {
				return p, err
			}
		} // else this request has used up its steps
	}
	if q.spent() {
		q.Queues.expiredIn.Store(&q.key)
	}
	p.Recheck = max(minRecheck, duration(at-q.now))
	p.Holder, err = q.holder()
	return p, err
}

// busy returns the status of a ticket that must not wait. Its Recheck is 0 if
// several places hold, and the row does not tell when the first of them expires.
func (q *queue) busy() (p driver.Status, err error) {
	p.State = driver.Gone
	if p.Holder, err = q.holder(); err != nil {
		return p, err
	}
	at := q.now
	switch {
	case q.held == 1:
		at, err = q.earliest()
	case q.head != nil && q.head.owner == "":
		at = q.head.until
	}
	if at > q.now {
		p.Recheck = duration(at - q.now)
	}
	return p, err
}

// predecessor returns when the waiting place before t expires, or none if no
// waiting place is before t. It drops expired tickets before t.
func (q *queue) predecessor(t *ticket) (at int64, none bool, err error) {
	if q.waiting == 1 {
		return 0, true, nil
	}
	to := t.place
	for n := 2; ; n = min(n*8, bulkMax) {
		back, err := q.rows.tickets(q.t.before.with(q.key, q.turn, to, n))
		if err != nil {
			return 0, false, err
		}
		complete := len(back) < n
		for len(back) > 0 {
			place, end := back[0].place, 1
			at := back[0].until
			for ; end < len(back) && back[end].place == place; end++ {
				at = max(at, back[end].until)
			}
			if end == len(back) && !complete && back[0].owner != "" {
				break // read again for the rest of this place
			}
			if living := q.dropExpired(back[:end]); len(living) > 0 {
				return at, false, nil
			}
			back, to = back[end:], place
		}
		if complete {
			return 0, true, nil
		}
	}
}

// earliest returns when the first of the holding places expires. It also bounds
// the deadlines that it reads, see [rows.bound].
func (q *queue) earliest() (int64, error) {
	at := int64(never)
	if q.head != nil {
		at = q.head.until
		if q.held == 1 && q.head.owner == "" {
			return at, nil
		}
	}
	places := make(map[int64]int64)
	s := q.t.holders.with(q.key, q.turn)
	s.Row = func(scan func(...any) error) error {
		var place, until, keep int64
		err := scan(&place, &until, &keep)
		places[place] = max(places[place], q.rows.bound(until, keep))
		return err
	}
	if err := q.rows.read(s); err != nil {
		return 0, err
	}
	if h := q.head; h != nil {
		at = max(at, places[h.place])
		delete(places, h.place)
	}
	for _, until := range places {
		at = min(at, until)
	}
	return at, nil
}

// holder returns the metadata of the first holder.
func (q *queue) holder() (meta string, err error) {
	if q.head != nil || q.held == 0 {
		if q.head != nil {
			meta = q.head.meta
		}
		return meta, nil
	}
	s := q.t.holder.with(q.key, q.turn)
	s.Row = func(scan func(...any) error) error { return scan(&meta) }
	err = q.rows.read(s)
	return meta, err
}
