package sqlqueue

import (
	"context"
	"slices"

	"github.com/holdfast-go/holdfast/driver"
)

// queue is one queue inside a transaction that has locked the queue's row: it
// decides, and rows reads and writes for it.
type queue struct {
	*Queues
	queueRow
	rows rows

	steps int // holders dropped and tickets granted so far, at most driver.MaxSteps
	drops int // waiters dropped so far, at most driver.MaxDrops

	waiters     []*ticket // the waiters that were read, from the front
	readTo      position  // where waiters ends
	moreWaiters bool      // there may be more after waiters
	pushes      []Push
}

type position struct{ place, seq int64 }

// visit locks the row of a queue and runs f on it, perhaps more than once: f
// must overwrite the results of an earlier run. If the row is missing, the
// queue is empty, and f must not write, unless create says that visit creates
// the row. Id is the id of a ticket that f will ask for, or empty.
func (s *Queues) visit(ctx context.Context, db DB, name, id string, create bool, f func(*queue) error) ([]Push, error) {
	var pushes []Push
	err := db.Tx(ctx, func(tx Tx) ([]*Stmt, error) {
		q := &queue{Queues: s, queueRow: queueRow{key: Key(name), name: name}}
		q.rows = rows{queueRow: &q.queueRow, d: &s.d, t: &s.t, ctx: ctx, tx: tx, prefetch: prefetch{id: id}}
		pushes = nil
		if err := q.rows.lock(create); err != nil {
			return nil, err
		}
		q.readTo, q.moreWaiters = position{q.turn, never}, q.waiting > 0
		if err := f(q); err != nil {
			return nil, err
		}
		pushes = q.pushes
		s.contention.record(q.key, q.waiting > 0)
		return q.rows.finish(pushes), nil
	})
	if err != nil {
		return nil, err
	}
	return pushes, nil
}

// Join implements [driver.Driver.Join]. Pushes to t's client go to the address
// wake, which is empty if the client does not listen. Join returns the pushes
// that the request caused.
func (s *Queues) Join(ctx context.Context, db DB, t *driver.Ticket, wake string, wait bool) (driver.Status, []Push, error) {
	if t.Replaces == nil && t.MinToken < maxToken {
		if p, err := s.joinFast(ctx, db, t, wake, wait); err != nil || p.State != 0 {
			return p, nil, err
		}
	}
	var p driver.Status
	var refusal error
	pushes, err := s.visit(ctx, db, t.Name, t.ID, true, func(q *queue) (err error) {
		p, refusal, err = q.join(t, wake, wait)
		return err
	})
	if err == nil {
		err = refusal
	}
	return p, pushes, err
}

// joinFast joins by statements that decide by themselves. If they cannot
// decide, it returns a status without a state.
func (s *Queues) joinFast(ctx context.Context, db DB, t *driver.Ticket, wake string, wait bool) (driver.Status, error) {
	key := Key(t.Name)
	compounds := s.compounds(db)
	inOneTrip := s.t.enqueue != nil || compounds.decides(t)
	contended := inOneTrip && s.contention.recent(key)
	if !contended && !s.contention.last(key) {
		var token int64
		join := s.joinEmpty(t, key, wake)
		join.Row = func(scan func(...any) error) error { return scan(&token) }
		if err := db.Auto(ctx, join); err != nil {
			return driver.Status{}, err
		}
		if token = max(token, join.Last); token > 0 {
			return driver.Status{State: driver.Held, Token: uint64(token), Lease: t.TTL}, nil
		}
		contended = inOneTrip && t.Owner == ""
	}
	switch {
	case !contended:
		return driver.Status{}, nil
	case s.t.enqueue != nil:
		return s.joinContended(ctx, db, t, key, wake, wait)
	}
	return compounds.join(ctx, t, key, wake, wait)
}

// joinEmpty returns the statement that takes the first place of an empty queue.
func (s *Queues) joinEmpty(t *driver.Ticket, key []byte, wake string) *Stmt {
	keep := micros(driver.Keep(t.TTL))
	return s.t.join.with(key, []byte(t.Name), t.Limit, t.Units,
		t.ID, t.Owner, t.Units, keep, keep, wake, t.Meta, int64(t.MinToken))
}

// join returns a refusal apart from errors: the queue's steps before the
// refusal are still committed.
func (q *queue) join(t *driver.Ticket, wake string, wait bool) (p driver.Status, refusal, err error) {
	own, err := q.find(t.ID)
	if err != nil {
		return p, nil, err
	}
	if own == nil && q.tombstones > 0 {
		until, err := q.rows.tombstoneOf(t.ID)
		if err != nil {
			return p, nil, err
		}
		if until > q.now {
			return driver.Status{State: driver.Gone}, nil, nil
		}
	}
	if t.Replaces != nil {
		if _, err := q.remove(t.Replaces.ID); err != nil {
			return p, nil, err
		}
	}
	if own != nil && !wait && own.place > q.turn {
		if _, err := q.remove(t.ID); err != nil {
			return p, nil, err
		}
		p, err = q.busy()
		return p, nil, err
	}
	if own != nil {
		own.wake = wake
		q.extend(own)
		p, err = q.status(own, t.TTL)
		return p, nil, err
	}
	if q.held+q.waiting == 0 {
		q.lim, q.seq, q.turn = t.Limit, 0, 0
	} else if q.lim != t.Limit {
		return p, &driver.LimitError{Name: t.Name, Have: q.lim, Want: t.Limit}, nil
	}
	sibling, err := q.sibling(t.Owner)
	if err != nil {
		return p, nil, err
	}
	if sibling != nil && t.Units > sibling.units {
		return p, driver.ErrUpgrade, nil
	}
	if sibling == nil && (q.token >= maxToken || t.MinToken >= maxToken) {
		return p, driver.Errorf(driver.Refused, "the queue has no more tokens"), nil
	}
	now := q.waiting == 0 && t.Units <= q.lim-q.used
	if sibling != nil {
		now = sibling.place <= q.turn
	}
	if !now && !wait {
		if q.due != never && q.tooFar(q.due, micros(driver.Keep(t.TTL))) {
			if _, err := q.earliest(); err != nil {
				return p, nil, err
			}
		}
		p, err = q.busy()
		return p, nil, err
	}
	own = q.enqueue(t, sibling, wake, now)
	p, err = q.status(own, t.TTL)
	return p, nil, err
}

// sibling returns a living ticket of a named owner, or nil. It drops expired
// tickets of that owner.
func (q *queue) sibling(owner string) (*ticket, error) {
	if owner == "" || q.held+q.waiting == 0 {
		return nil, nil
	}
	if q.head != nil && q.head.owner == owner {
		return q.head, nil
	}
	siblings, err := q.rows.tickets(q.t.byOwner.with(q.key, owner))
	if err != nil {
		return nil, err
	}
	if siblings = q.dropExpired(siblings); len(siblings) == 0 {
		return nil, err
	}
	return siblings[0], nil
}

// enqueue adds t to the queue: to the place of sibling, or at the end if that
// is nil. Now says that the place holds already, or is granted at once.
func (q *queue) enqueue(t *driver.Ticket, sibling *ticket, wake string, now bool) *ticket {
	keep := micros(driver.Keep(t.TTL))
	q.seq++
	own := &ticket{
		place: q.seq, seq: q.seq, id: t.ID, owner: t.Owner, units: t.Units,
		minToken: int64(min(t.MinToken, maxToken)), keep: keep, until: q.now + keep, wake: wake, meta: t.Meta,
	}
	q.rows.known.add(own)
	q.rows.dirty = true
	switch {
	case sibling != nil:
		own.place, own.units, own.token = sibling.place, sibling.units, sibling.token
	case now:
		q.token = q.nextToken(own.minToken)
		own.token = q.token
		q.turn = own.place
		q.held++
		q.used += own.units
		if q.held == 1 {
			own.inRow = true
			q.head = own
			return own
		}
	default:
		q.waiting++
	}
	if now {
		q.due = min(q.due, own.until)
	}
	q.rows.write(q.t.insert.with(q.key, own.place, own.seq, own.id, own.owner, own.units,
		own.token, own.minToken, own.keep, own.until, own.wake, own.meta))
	return own
}

// extend renews a ticket. It never brings its deadline forward.
func (q *queue) extend(t *ticket) {
	t.until = max(t.until, q.now+t.keep)
	q.rows.dirty = true
	if !t.inRow {
		q.rows.write(q.t.extend.with(t.until, t.wake, q.key, t.place, t.seq))
	}
}

// remove drops the ticket with this id, if there is one, and returns the state
// that it had.
func (q *queue) remove(id string) (driver.Status, error) {
	t, err := q.find(id)
	if err != nil || t == nil {
		return driver.Status{State: driver.Gone}, err
	}
	p := driver.Status{State: driver.Waiting}
	if t.place <= q.turn {
		p = driver.Status{State: driver.Held, Token: uint64(t.token)}
	}
	if err := q.drop(t, false); err != nil {
		return p, err
	}
	return p, q.advance(nil)
}

// Break implements [driver.Driver.Break].
func (s *Queues) Break(ctx context.Context, db DB, name, id string) ([]Push, error) {
	var refusal error
	pushes, err := s.visit(ctx, db, name, id, false, func(q *queue) error {
		refusal = driver.ErrNoTicket
		t, err := q.find(id)
		if err != nil || t == nil {
			return err
		}
		refusal = nil
		q.push(t, driver.Status{State: driver.Gone})
		q.rows.addTombstone(t.id)
		if err := q.drop(t, false); err != nil {
			return err
		}
		return q.advance(nil)
	})
	if err == nil {
		err = refusal
	}
	return pushes, err
}

// Inspect implements [driver.Driver.Inspect].
func (s *Queues) Inspect(ctx context.Context, db DB, name string) (driver.Queue, []Push, error) {
	var out driver.Queue
	pushes, err := s.visit(ctx, db, name, "", false, func(q *queue) error {
		if err := q.advance(nil); err != nil {
			return err
		}
		out = driver.Queue{Name: name, Token: uint64(q.token)}
		if q.held+q.waiting == 0 {
			return nil
		}
		out.Limit = q.lim
		all := []*ticket{}
		if q.head != nil {
			all = append(all, q.head)
		}
		rows, err := q.rows.ticketsReadOnly(q.t.all.with(q.key))
		if err != nil {
			return err
		}
		all = append(all, rows...)
		// The ticket in the queue's row is the first of its place, and that
		// place is the first of the queue.
		slices.SortStableFunc(all, func(a, b *ticket) int { return int(a.place - b.place) })
		for _, t := range all {
			e := driver.Entry{ID: t.id, Owner: t.owner, State: driver.Waiting, Units: t.units, Left: duration(t.until - q.now), Meta: t.meta}
			if t.place <= q.turn {
				e.State, e.Token = driver.Held, uint64(t.token)
			}
			out.Tickets = append(out.Tickets, e)
		}
		return nil
	})
	return out, pushes, err
}
