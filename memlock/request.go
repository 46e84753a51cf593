package memlock

import (
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// A request is one call of a driver, under the store's lock: begin takes the
// lock, end gives it back and then tells those who moved.
type request struct {
	s     *Store
	now   time.Duration
	steps int // tickets dropped or granted so far, at most driver.MaxSteps

	// Who is told at the end: mostly nobody or one, who costs no allocation.
	n    int
	one  push
	more []push
}

type push struct {
	d  *Driver
	id string
	p  driver.Place
}

func (s *Store) begin() request {
	s.mu.Lock()
	return request{s: s, now: s.now()}
}

func (r *request) end() {
	r.s.mu.Unlock()
	if r.n > 0 {
		r.one.d.push(r.one.id, r.one.p)
	}
	for i := range r.more {
		r.more[i].d.push(r.more[i].id, r.more[i].p)
	}
}

// advance drops the holders whose time is over, and then goes along those who
// wait: it drops them when their time is over, grants them as long as there is
// room, and stops at the first living one for whom there is none. The ticket
// asker, which may be nil, learns what happened from its answer and is not
// told.
func (r *request) advance(l *line, asker *ticket) {
	if r.now >= l.check {
		l.check = never
		for i := 0; i < l.held; {
			p := l.places[i]
			if r.steps >= driver.MaxSteps {
				l.check = r.now
				break
			}
			if r.clear(l, p, i) {
				continue
			}
			l.check = min(l.check, p.earliest())
			i++
		}
	}
	for l.held < len(l.places) && r.steps < driver.MaxSteps {
		p := l.places[l.held]
		if r.clear(l, p, l.held) {
			continue
		}
		if r.steps >= driver.MaxSteps || !l.fits(p.units) {
			return
		}
		r.steps++
		r.grant(l, p)
		for t := p.first; t != nil; t = t.next {
			if t != asker {
				r.push(t, driver.Place{State: driver.Held, Token: p.token})
			}
		}
	}
}

// clear drops the tickets of the place at i whose time is over, and the place
// when none is left. It says whether the place is gone.
func (r *request) clear(l *line, p *place, i int) bool {
	for t := p.first; t != nil && r.steps < driver.MaxSteps; {
		next := t.next // drop ends t
		if t.until <= r.now {
			r.steps++
			r.bury(l, t, i)
		}
		t = next
	}
	return p.first == nil
}

// grant makes the first place that waits a holder.
func (r *request) grant(l *line, p *place) {
	l.last = driver.NextToken(l.last, p.floor, r.s.start.Add(r.now))
	p.token = l.last
	p.held = true
	l.held++
	l.used += p.units
	l.check = min(l.check, p.earliest())
}

// bury drops a ticket for ever: its id does not come back.
func (r *request) bury(l *line, t *ticket, i int) {
	r.s.graves.add(t.id, r.now)
	r.drop(l, t, i)
}

// drop removes a ticket, and its place, which is at i, with the last one. The
// caller has to advance the line.
func (r *request) drop(l *line, t *ticket, i int) {
	delete(l.ids, t.id)
	p := t.place
	at := &p.first
	for *at != t {
		at = &(*at).next
	}
	*at = t.next
	if p.first == nil {
		l.cut(i)
		r.s.freePlace(p)
	} else {
		*t = ticket{}
	}
}

func (r *request) push(t *ticket, p driver.Place) {
	if r.n++; r.n == 1 {
		r.one = push{t.d, t.id, p}
	} else {
		r.more = append(r.more, push{t.d, t.id, p})
	}
}

// find advances the line and returns the ticket of this id, if it is there and
// its time is not over.
func (r *request) find(l *line, id string) *ticket {
	t := l.ids[id]
	r.advance(l, t)
	if t == nil {
		return nil
	}
	if t = l.ids[id]; t != nil && t.until <= r.now {
		r.bury(l, t, l.index(t.place))
		r.advance(l, nil)
		return nil
	}
	return t
}

// answer says where t stands. On the way it drops those directly before it
// whose time is over, so that its Recheck is about a living one.
func (r *request) answer(l *line, t *ticket) driver.Place {
	p := t.place
	if p.held {
		return driver.Place{State: driver.Held, Token: p.token, Lease: t.ttl}
	}
	i := l.index(p)
	for i > l.held && r.steps < driver.MaxSteps && r.clear(l, l.places[i-1], i-1) {
		i--
	}
	return driver.Place{
		State:   driver.Waiting,
		Lease:   t.ttl,
		Ahead:   i,
		Recheck: l.recheck(i, r.now),
		Holder:  l.holder(),
	}
}

func (r *request) join(d *Driver, t *driver.Ticket, wait bool) (driver.Place, error) {
	l := r.line(t.Name)
	own := r.find(l, t.ID)
	if own == nil && r.s.graves.has(t.ID, r.now) {
		return driver.Place{State: driver.Gone}, nil
	}
	if t.Replaces != nil {
		r.remove(l, t.Replaces.ID)
	}
	if own != nil {
		if !wait && !own.place.held {
			r.remove(l, t.ID)
			return driver.Place{State: driver.Gone, Holder: l.holder()}, nil
		}
		own.until = max(own.until, r.now+driver.Keep(own.ttl))
		return r.answer(l, own), nil
	}
	if len(l.places) == 0 {
		l.limit = t.Limit
	} else if l.limit != t.Limit {
		return driver.Place{}, &driver.LimitError{Name: t.Name, Have: l.limit, Want: t.Limit}
	}
	if t.Owner != "" {
		if p := l.owners[t.Owner]; p != nil && !r.clear(l, p, l.index(p)) {
			if t.Units > p.units {
				return driver.Place{}, driver.ErrUpgrade
			}
			if !wait && !p.held {
				return driver.Place{State: driver.Gone, Holder: l.holder()}, nil
			}
			own = new(ticket)
			r.take(d, l, p, own, t)
			return r.answer(l, own), nil
		}
	}
	if max(l.last, t.Floor) >= lastToken {
		return driver.Place{}, driver.Errorf(driver.Refused, "the line has no more tokens")
	}
	now := l.held == len(l.places) && l.fits(t.Units)
	if !now && !wait {
		return driver.Place{State: driver.Gone, Holder: l.holder()}, nil
	}
	p := r.s.newPlace()
	p.owner, p.units = t.Owner, t.Units
	r.take(d, l, p, &p.one, t)
	l.end(p)
	if now {
		r.grant(l, p)
	}
	return r.answer(l, &p.one), nil
}

// take makes own the ticket t, in place p.
func (r *request) take(d *Driver, l *line, p *place, own *ticket, t *driver.Ticket) {
	*own = ticket{id: t.ID, meta: t.Meta, ttl: t.TTL, until: r.now + driver.Keep(t.TTL), d: d}
	p.floor = max(p.floor, t.Floor)
	p.add(own)
	l.ids[t.ID] = own
	if p.held {
		l.check = min(l.check, own.until)
	}
}

func (r *request) renew(ref *driver.Ref) driver.Place {
	l := r.s.lines[ref.Name]
	if l == nil {
		return driver.Place{State: driver.Gone}
	}
	t := r.find(l, ref.ID)
	if t == nil {
		return driver.Place{State: driver.Gone}
	}
	t.ttl = ref.TTL // the same as ever, unless the caller is a driver itself
	t.until = max(t.until, r.now+driver.Keep(t.ttl))
	return r.answer(l, t)
}

func (r *request) leave(ref *driver.Ref) driver.Place {
	if ref.Unsure {
		r.s.graves.add(ref.ID, r.now)
	}
	if l := r.s.lines[ref.Name]; l != nil {
		return r.remove(l, ref.ID)
	}
	return driver.Place{State: driver.Gone}
}

// remove drops the ticket of this id, if there is one, and says what it found.
func (r *request) remove(l *line, id string) driver.Place {
	t := r.find(l, id)
	if t == nil {
		return driver.Place{State: driver.Gone}
	}
	p := driver.Place{State: driver.Waiting}
	if t.place.held {
		p = driver.Place{State: driver.Held, Token: t.place.token}
	}
	r.drop(l, t, l.index(t.place))
	r.advance(l, nil)
	return p
}

func (r *request) breakTicket(name, id string) error {
	l := r.s.lines[name]
	if l == nil {
		return driver.ErrNoTicket
	}
	t := r.find(l, id)
	if t == nil {
		return driver.ErrNoTicket
	}
	r.push(t, driver.Place{State: driver.Gone})
	r.bury(l, t, l.index(t.place))
	r.advance(l, nil)
	return nil
}

func (r *request) inspect(name string) driver.Line {
	line := driver.Line{Name: name}
	l := r.s.lines[name]
	if l == nil {
		return line
	}
	r.advance(l, nil)
	line.Token = l.last
	if len(l.places) == 0 {
		return line
	}
	line.Limit = l.limit
	line.Tickets = make([]driver.Entry, 0, len(l.ids))
	for _, p := range l.places {
		e := driver.Entry{Owner: p.owner, State: driver.Waiting, Units: p.units, Token: p.token}
		if p.held {
			e.State = driver.Held
		}
		for t := p.first; t != nil; t = t.next {
			e.ID, e.Meta, e.Left = t.id, t.meta, t.until-r.now
			line.Tickets = append(line.Tickets, e)
		}
	}
	return line
}
