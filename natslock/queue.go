package natslock

import (
	"math"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// tombstoneTTL is the time for which a record remembers that a ticket is Gone:
// longer than any request about the ticket can be in flight.
const tombstoneTTL = time.Minute

// maxToken is the last token of a queue. The second half of the uint64s is left
// to the present waiters, so that no counter ever wraps.
const maxToken = math.MaxInt64

// request is the change of one record by one or more calls. It has no I/O: the record
// was read, and is written after it if changed says so, unless another client
// wrote it meanwhile.
type request struct {
	q       *record
	now     int64 // the server's clock, read after the calls began
	steps   int   // holders dropped and tickets granted for the present call, at most driver.MaxSteps
	drops   int   // waiters dropped for the present call, at most driver.MaxDrops
	changed bool
	pushes  []push
}

// push is the notification of one ticket's client.
type push struct {
	address, id string
	status      driver.Status
}

// newRequest returns a request on q, nil for a name without a record. A ticket
// that would expire later than if it were renewed now counts as renewed now: the
// server's clock was set back, or another server with another clock leads.
func newRequest(q *record, name string, now int64) *request {
	if q == nil {
		q = &record{Layout: layout, Name: name}
	}
	for _, p := range q.Places {
		for _, t := range p.Tickets {
			t.Expiry = min(t.Expiry, expiryOf(now, t.TTL))
		}
	}
	for id, since := range q.Gone {
		if age := now - since; age < 0 {
			q.Gone[id] = now
		} else if age > int64(tombstoneTTL) {
			delete(q.Gone, id) // written with the next change
		}
	}
	return &request{q: q, now: now}
}

func expiryOf(now int64, ttl time.Duration) int64 { return now + int64(driver.Keep(ttl)) }

// advance drops the expired holders, and then goes along the waiters: it drops
// expired ones, grants the others as long as there is room, and stops at the
// first living one without room. The ticket asker, which may be nil, learns of
// its grant from the answer and gets no push.
func (r *request) advance(asker *ticket) {
	q := r.q
	for i := 0; i < len(q.Places) && q.Places[i].held() && !r.spent(); {
		if !r.dropExpired(i) {
			i++
		}
	}
	held, units := q.held()
	for held < len(q.Places) && !r.spent() {
		if r.dropExpired(held) {
			continue
		}
		p := q.Places[held]
		if r.spent() || p.Units > q.Limit-units {
			return
		}
		r.steps++
		r.grant(p)
		held++
		units += p.Units
		for _, t := range p.Tickets {
			if t != asker {
				r.push(t, driver.Status{State: driver.Held, Token: p.Token})
			}
		}
	}
}

// spent reports whether another request has to go on.
func (r *request) spent() bool {
	return r.steps >= driver.MaxSteps || r.drops >= driver.MaxDrops
}

// grant makes the first waiting place a holder.
func (r *request) grant(p *place) {
	r.q.Token = driver.NextToken(r.q.Token, p.MinToken, time.Unix(0, r.now))
	p.Token = r.q.Token
	r.changed = true
}

func (r *request) push(t *ticket, st driver.Status) {
	r.pushes = append(r.pushes, push{t.Push, t.ID, st})
}

// dropExpired drops the expired tickets of the place at i, and the place when
// none is left. It reports whether the place is gone.
func (r *request) dropExpired(i int) bool {
	p := r.q.Places[i]
	n, most := &r.drops, driver.MaxDrops
	if p.held() {
		n, most = &r.steps, driver.MaxSteps
	}
	for j := 0; j < len(p.Tickets) && *n < most; {
		if t := p.Tickets[j]; t.Expiry <= r.now {
			*n++
			if r.dropForever(p, t) {
				return true
			}
		} else {
			j++
		}
	}
	return false
}

// dropForever drops a ticket and adds a tombstone: its id does not come back.
func (r *request) dropForever(p *place, t *ticket) (last bool) {
	r.bar(t.ID)
	return r.drop(p, t)
}

// bar adds a tombstone for an id.
func (r *request) bar(id string) {
	if r.q.Gone == nil {
		r.q.Gone = make(map[string]int64)
	}
	r.q.Gone[id] = r.now
	r.changed = true
}

// drop removes a ticket, and with its last ticket the place, which it reports.
func (r *request) drop(p *place, t *ticket) (last bool) {
	r.changed = true
	p.Tickets = slices.DeleteFunc(p.Tickets, func(u *ticket) bool { return u == t })
	if len(p.Tickets) > 0 {
		return false
	}
	i := slices.Index(r.q.Places, p)
	r.q.Places = slices.Delete(r.q.Places, i, i+1)
	if len(r.q.Places) == 0 {
		r.q.Limit = 0
	}
	return true
}

// find advances the queue and returns the ticket of this id, if there is one that
// has not expired.
func (r *request) find(id string) (*place, *ticket) {
	_, t := r.q.find(id)
	r.advance(t)
	if t == nil {
		return nil, nil
	}
	p, t := r.q.find(id)
	if t != nil && t.Expiry <= r.now {
		r.dropForever(p, t)
		r.advance(nil)
		return nil, nil
	}
	return p, t
}

// status returns the Status of t. On the way it drops expired tickets directly
// before t, so that Recheck is about a living one.
func (r *request) status(p *place, t *ticket) driver.Status {
	if p.held() {
		return driver.Status{State: driver.Held, Token: p.Token, Lease: t.TTL}
	}
	held, _ := r.q.held()
	i := slices.Index(r.q.Places, p)
	for i > held && r.dropExpired(i-1) {
		i--
	}
	return driver.Status{
		State:   driver.Waiting,
		Lease:   t.TTL,
		Ahead:   i,
		Recheck: r.recheck(i),
		Holder:  r.q.holder(),
	}
}

// recheck returns when the waiting place at i should be renewed early: when the
// store would drop the place before it or, for the first waiter, the earliest of
// all holders.
func (r *request) recheck(i int) time.Duration {
	const soon = time.Millisecond // 0 would mean that there is no need
	held, units := r.q.held()
	at := int64(math.MaxInt64)
	switch {
	case i > held:
		at = r.q.Places[i-1].lastExpiry()
	case r.q.Places[i].Units > r.q.Limit-units:
		for _, p := range r.q.Places[:held] {
			at = min(at, p.lastExpiry())
		}
	default:
		return soon
	}
	return max(time.Duration(at-r.now), soon)
}

// busy returns the answer to a ticket that must not wait.
func (r *request) busy() driver.Status {
	st := driver.Status{State: driver.Gone, Holder: r.q.holder()}
	if held, _ := r.q.held(); held > 0 {
		st.Recheck = time.Duration(r.q.Places[0].lastExpiry() - r.now)
	}
	return st
}

func (r *request) join(t *driver.Ticket, wait bool, address string) (driver.Status, error) {
	p, own := r.find(t.ID)
	if own == nil && r.q.Gone[t.ID] != 0 {
		return driver.Status{State: driver.Gone}, nil
	}
	if t.Replaces != nil {
		r.remove(t.Replaces.ID)
	}
	if own != nil {
		if !wait && !p.held() {
			r.remove(t.ID)
			return r.busy(), nil
		}
		r.extend(own)
		return r.status(p, own), nil
	}
	q := r.q
	if len(q.Places) > 0 && q.Limit != t.Limit {
		return driver.Status{}, &driver.LimitError{Name: t.Name, Have: q.Limit, Want: t.Limit}
	}
	if t.Owner != "" {
		if p := q.ofOwner(t.Owner); p != nil && !r.dropExpired(slices.Index(q.Places, p)) {
			if t.Units > p.Units {
				return driver.Status{}, driver.ErrUpgrade
			}
			if !wait && !p.held() {
				return r.busy(), nil
			}
			return r.status(p, r.add(p, t, address)), nil
		}
	}
	if max(q.Token, t.MinToken) >= maxToken {
		return driver.Status{}, driver.Errorf(driver.Refused, "the queue has no more tokens")
	}
	held, units := q.held()
	now := held == len(q.Places) && t.Units <= t.Limit-units
	if !now && !wait {
		return r.busy(), nil
	}
	p = &place{Owner: t.Owner, Units: t.Units}
	own = r.add(p, t, address)
	q.Limit = t.Limit
	q.Places = append(q.Places, p)
	if now {
		r.grant(p)
	}
	return r.status(p, own), nil
}

// add gives the place another ticket.
func (r *request) add(p *place, t *driver.Ticket, address string) *ticket {
	own := &ticket{ID: t.ID, Meta: t.Meta, TTL: t.TTL, Expiry: expiryOf(r.now, t.TTL), Push: address}
	p.MinToken = max(p.MinToken, t.MinToken)
	p.Tickets = append(p.Tickets, own)
	r.changed = true
	return own
}

func (r *request) extend(t *ticket) {
	t.Expiry = max(t.Expiry, expiryOf(r.now, t.TTL))
	r.changed = true
}

func (r *request) renew(ref *driver.Ref) driver.Status {
	p, t := r.find(ref.ID)
	if t == nil {
		return driver.Status{State: driver.Gone}
	}
	t.TTL = ref.TTL
	r.extend(t)
	return r.status(p, t)
}

func (r *request) leave(ref *driver.Ref) driver.Status {
	if ref.JoinPending {
		r.bar(ref.ID)
	}
	return r.remove(ref.ID)
}

// remove drops the ticket of this id, if there is one, and returns its earlier
// state.
func (r *request) remove(id string) driver.Status {
	p, t := r.find(id)
	if t == nil {
		return driver.Status{State: driver.Gone}
	}
	st := driver.Status{State: driver.Waiting}
	if p.held() {
		st = driver.Status{State: driver.Held, Token: p.Token}
	}
	r.drop(p, t)
	r.advance(nil)
	return st
}

func (r *request) breakTicket(id string) error {
	p, t := r.find(id)
	if t == nil {
		return driver.ErrNoTicket
	}
	r.push(t, driver.Status{State: driver.Gone})
	r.dropForever(p, t)
	r.advance(nil)
	return nil
}

func (r *request) inspect() driver.Queue {
	r.advance(nil)
	q := driver.Queue{Name: r.q.Name, Token: r.q.Token, Limit: r.q.Limit}
	for _, p := range r.q.Places {
		e := driver.Entry{Owner: p.Owner, State: driver.Waiting, Units: p.Units, Token: p.Token}
		if p.held() {
			e.State = driver.Held
		}
		for _, t := range p.Tickets {
			e.ID, e.Meta, e.Left = t.ID, t.Meta, time.Duration(t.Expiry-r.now)
			q.Tickets = append(q.Tickets, e)
		}
	}
	return q
}
