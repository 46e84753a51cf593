package memlock

import (
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// request is one call of a driver, under the store's lock: begin takes the
// lock, end releases it and then sends the pushes.
type request struct {
	s     *Store
	now   time.Duration
	steps int // holders dropped and tickets granted so far, at most driver.MaxSteps
	drops int // waiters dropped so far, at most driver.MaxDrops

	// The pushes to send at the end: mostly none or one, which costs no allocation.
	pushes     int
	firstPush  push
	morePushes []push
}

type push struct {
	driver *Driver
	id     string
	status driver.Status
}

func (s *Store) begin() request {
	s.mu.Lock()
	return request{s: s, now: s.now()}
}

func (r *request) end() {
	r.s.mu.Unlock()
	if r.pushes > 0 {
		r.firstPush.driver.push(r.firstPush.id, r.firstPush.status)
	}
	for i := range r.morePushes {
		r.morePushes[i].driver.push(r.morePushes[i].id, r.morePushes[i].status)
	}
}

// advance drops the expired holders, and then goes along the waiters: it drops
// expired ones, grants the others as long as there is room, and stops at the
// first living one without room. The ticket asker, which may be nil, learns of
// its grant from the reply and gets no push.
func (r *request) advance(q *queue, asker *ticket) {
	if r.now >= q.nextCheck {
		q.nextCheck = never
		for i := 0; i < q.held; {
			p := q.places[i]
			if r.steps >= driver.MaxSteps {
				q.nextCheck = r.now
				break
			}
			if r.dropExpired(q, p, i) {
				continue
			}
			q.nextCheck = min(q.nextCheck, p.firstExpiry())
			i++
		}
	}
	for q.held < len(q.places) && !r.spent() {
		p := q.places[q.held]
		if r.dropExpired(q, p, q.held) {
			continue
		}
		if r.spent() || !q.fits(p.units) {
			return
		}
		r.steps++
		r.grant(q, p)
		for t := p.first; t != nil; t = t.next {
			if t != asker {
				r.push(t, driver.Status{State: driver.Held, Token: p.token})
			}
		}
	}
}

// dropExpired drops the expired tickets of the place at i, and the place when
// none is left. It reports whether the place is gone.
func (r *request) dropExpired(q *queue, p *place, i int) bool {
	n, most := &r.drops, driver.MaxDrops
	if p.held {
		n, most = &r.steps, driver.MaxSteps
	}
	for t := p.first; t != nil && *n < most; {
		next := t.next // drop ends t
		if t.expiry <= r.now {
			*n++
			r.dropForever(q, t, i)
		}
		t = next
	}
	return p.first == nil
}

// spent reports whether another request has to go on.
func (r *request) spent() bool {
	return r.steps >= driver.MaxSteps || r.drops >= driver.MaxDrops
}

// grant makes the first waiting place a holder.
func (r *request) grant(q *queue, p *place) {
	q.lastToken = driver.NextToken(q.lastToken, p.minToken, r.s.start.Add(r.now))
	p.token = q.lastToken
	p.held = true
	q.held++
	q.unitsHeld += p.units
	q.nextCheck = min(q.nextCheck, p.firstExpiry())
}

// dropForever drops a ticket and adds a tombstone: its id does not come back.
func (r *request) dropForever(q *queue, t *ticket, i int) {
	r.s.tombstones.add(t.id, r.now)
	r.drop(q, t, i)
}

// drop removes a ticket, and with its last ticket the place, which is at i. The
// caller has to advance the queue afterwards.
func (r *request) drop(q *queue, t *ticket, i int) {
	delete(q.ids, t.id)
	p := t.place
	at := &p.first
	for *at != t {
		at = &(*at).next
	}
	*at = t.next
	if p.first == nil {
		q.removePlace(i)
		r.s.freePlace(p)
	} else {
		*t = ticket{}
	}
}

func (r *request) push(t *ticket, st driver.Status) {
	if r.pushes++; r.pushes == 1 {
		r.firstPush = push{t.driver, t.id, st}
	} else {
		r.morePushes = append(r.morePushes, push{t.driver, t.id, st})
	}
}

// find advances the queue and returns the ticket of this id, if there is one
// that has not expired.
func (r *request) find(q *queue, id string) *ticket {
	t := q.ids[id]
	r.advance(q, t)
	if t == nil {
		return nil
	}
	if t = q.ids[id]; t != nil && t.expiry <= r.now {
		r.dropForever(q, t, q.indexOf(t.place))
		return nil
	}
	return t
}

// status returns the Status of t. On the way it drops expired tickets directly
// before t, so that Recheck is about a living one.
func (r *request) status(q *queue, t *ticket) driver.Status {
	p := t.place
	if p.held {
		return driver.Status{State: driver.Held, Token: p.token, Lease: t.ttl}
	}
	i := q.indexOf(p)
	for i > q.held && r.dropExpired(q, q.places[i-1], i-1) {
		i--
	}
	return driver.Status{
		State:   driver.Waiting,
		Lease:   t.ttl,
		Ahead:   i,
		Recheck: q.recheck(i, r.now),
		Holder:  q.holder(),
	}
}

func (r *request) join(d *Driver, t *driver.Ticket, wait bool) (driver.Status, error) {
	q := r.queueOf(t.Name)
	own := r.find(q, t.ID)
	if own == nil && r.s.tombstones.has(t.ID, r.now) {
		return driver.Status{State: driver.Gone}, nil
	}
	if t.Replaces != nil {
		r.remove(q, t.Replaces.ID)
	}
	if own != nil {
		if !wait && !own.place.held {
			r.remove(q, t.ID)
			return q.busy(r.now), nil
		}
		own.expiry = max(own.expiry, r.now+driver.Keep(own.ttl))
		return r.status(q, own), nil
	}
	if len(q.places) == 0 {
		q.limit = t.Limit
	} else if q.limit != t.Limit {
		return driver.Status{}, &driver.LimitError{Name: t.Name, Have: q.limit, Want: t.Limit}
	}
	if t.Owner != "" {
		if p := q.owners[t.Owner]; p != nil && !r.dropExpired(q, p, q.indexOf(p)) {
			if t.Units > p.units {
				return driver.Status{}, driver.ErrUpgrade
			}
			if !wait && !p.held {
				return q.busy(r.now), nil
			}
			own = new(ticket)
			r.addTicket(d, q, p, own, t)
			return r.status(q, own), nil
		}
	}
	if max(q.lastToken, t.MinToken) >= maxToken {
		return driver.Status{}, driver.Errorf(driver.Refused, "the queue has no more tokens")
	}
	now := q.held == len(q.places) && q.fits(t.Units)
	if !now && !wait {
		return q.busy(r.now), nil
	}
	p := r.s.newPlace()
	p.owner, p.units = t.Owner, t.Units
	r.addTicket(d, q, p, &p.inline, t)
	q.appendPlace(p)
	if now {
		r.grant(q, p)
	}
	return r.status(q, &p.inline), nil
}

// addTicket makes own the ticket t, in place p.
func (r *request) addTicket(d *Driver, q *queue, p *place, own *ticket, t *driver.Ticket) {
	*own = ticket{id: t.ID, meta: t.Meta, ttl: t.TTL, expiry: r.now + driver.Keep(t.TTL), driver: d}
	p.minToken = max(p.minToken, t.MinToken)
	p.add(own)
	q.ids[t.ID] = own
	if p.held {
		q.nextCheck = min(q.nextCheck, own.expiry)
	}
}

func (r *request) renew(ref *driver.Ref) driver.Status {
	q := r.s.queues[ref.Name]
	if q == nil {
		return driver.Status{State: driver.Gone}
	}
	t := r.find(q, ref.ID)
	if t == nil {
		return driver.Status{State: driver.Gone}
	}
	t.ttl = ref.TTL // the same as ever, unless the caller is a driver itself
	t.expiry = max(t.expiry, r.now+driver.Keep(t.ttl))
	return r.status(q, t)
}

func (r *request) leave(ref *driver.Ref) driver.Status {
	if ref.JoinPending {
		r.s.tombstones.add(ref.ID, r.now)
	}
	if q := r.s.queues[ref.Name]; q != nil {
		return r.remove(q, ref.ID)
	}
	return driver.Status{State: driver.Gone}
}

// remove drops the ticket of this id, if there is one, and returns its earlier
// state.
func (r *request) remove(q *queue, id string) driver.Status {
	t := r.find(q, id)
	if t == nil {
		return driver.Status{State: driver.Gone}
	}
	st := driver.Status{State: driver.Waiting}
	if t.place.held {
		st = driver.Status{State: driver.Held, Token: t.place.token}
	}
	r.drop(q, t, q.indexOf(t.place))
	r.advance(q, nil)
	return st
}

func (r *request) breakTicket(name, id string) error {
	q := r.s.queues[name]
	if q == nil {
		return driver.ErrNoTicket
	}
	t := r.find(q, id)
	if t == nil {
		return driver.ErrNoTicket
	}
	r.push(t, driver.Status{State: driver.Gone})
	r.dropForever(q, t, q.indexOf(t.place))
	r.advance(q, nil)
	return nil
}

func (r *request) inspect(name string) driver.Queue {
	dq := driver.Queue{Name: name}
	q := r.s.queues[name]
	if q == nil {
		return dq
	}
	r.advance(q, nil)
	dq.Token = q.lastToken
	if len(q.places) == 0 {
		return dq
	}
	dq.Limit = q.limit
	dq.Tickets = make([]driver.Entry, 0, len(q.ids))
	for _, p := range q.places {
		e := driver.Entry{Owner: p.owner, State: driver.Waiting, Units: p.units, Token: p.token}
		if p.held {
			e.State = driver.Held
		}
		for t := p.first; t != nil; t = t.next {
			e.ID, e.Meta, e.Left = t.id, t.meta, t.expiry-r.now
			dq.Tickets = append(dq.Tickets, e)
		}
	}
	return dq
}
