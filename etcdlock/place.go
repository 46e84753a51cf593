package etcdlock

import (
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// place is the driver's knowledge of a ticket: its status at the store, as last
// reported, and the sessions that it depends on. Driver.mu guards all fields
// but the first group.
type place struct {
	d     *Driver
	t     *driver.Ticket
	queue string // the prefix of the queue's keys

	sess      *session
	key       string // the key of its place; set before the first request
	value     string // of the ticket's own key
	rev       int64  // create revision of the place's key: the token; 0 until known
	state     driver.State
	over      atomic.Bool // the state is Gone, for good
	expiresAt time.Time   // the ticket's time is over then, unless it is renewed
	mustLeave bool        // its time is over, or it left: its key must be removed
	left      bool        // the core has given it up

	// Of tickets of a named owner only.
	owner     *session // the session of the owner's place
	member    string   // the ticket's own key
	memberRev int64

	earlyWakes      []message   // wake-ups that came before rev was known
	next            []successor // the next waiters, as the previous holder named them
	waited          bool        // its own Join did not grant it
	predecessorKey  string      // the key before its own, as its Join read it; empty once it is watched
	onlyPredecessor string      // the key of its only predecessor, if that is ours
	watch           *watch      // on its own key while it holds, on its predecessor's while it waits
	checkAt         time.Time   // the time of the janitor's next check
	heapIndex       int32       // its index in the janitor's schedule, plus 1
}

// ownKey returns the key that belongs to this ticket alone.
func (p *place) ownKey() string {
	if p.member != "" {
		return p.member
	}
	return p.key
}

func (p *place) ownRev() int64 {
	if p.member != "" {
		return p.memberRev
	}
	return p.rev
}

func (p *place) record() record {
	return record{id: p.t.ID, owner: p.t.Owner, ttl: p.t.TTL, meta: p.t.Meta}
}

// findLocked returns the place of a ticket, or nil if the driver knows none.
func (d *Driver) findLocked(t *driver.Ticket) *place {
	if p, ok := t.DriverData.(*place); ok && (p.d == d || p.over.Load()) {
		return p
	}
	return d.byID[t.ID]
}

// enterLocked adds a place to a session, with a key that is free to use. If no answer
// about the place ever comes, the janitor removes it when its time is over: a
// Join may be carried out after all its callers have given up, and the session
// lives on.
func (d *Driver) enterLocked(t *driver.Ticket, s *session) *place {
	p := &place{d: d, t: t, queue: d.keys.queue(t.Name), sess: s}
	p.value = p.record().encode()
	if t.Owner == "" {
		if t.Limit == 1 && s.queues[p.queue] == nil {
			p.key = recipe(p.queue, s.hex)
			s.queues[p.queue] = p
		} else {
			p.key = placeKey(p.queue, t.Limit, t.Units, s.hex, t.ID)
		}
		d.byKey[p.key] = append(d.byKey[p.key], p)
	}
	p.expiresAt = time.Now().Add(driver.Keep(t.TTL))
	s.places[p] = struct{}{}
	t.DriverData = p
	d.byID[t.ID] = p
	d.janitor.scheduleLocked(p, p.expiresAt)
	return p
}

// shareKeyLocked gives an owner's ticket the place that it shares.
func (d *Driver) shareKeyLocked(p *place, owner *session, key string) {
	d.dropKeyLocked(p)
	p.owner, p.key = owner, key
	owner.places[p] = struct{}{}
	d.byKey[key] = append(d.byKey[key], p)
}

func (d *Driver) dropKeyLocked(p *place) {
	ps := d.byKey[p.key]
	for i, q := range ps {
		if q == p {
			ps = append(ps[:i:i], ps[i+1:]...)
			break
		}
	}
	if len(ps) > 0 {
		d.byKey[p.key] = ps
	} else {
		delete(d.byKey, p.key)
	}
	if s := p.owner; s != nil {
		delete(s.places, p)
		p.owner = nil
		if len(s.places) == 0 {
			d.dropSessionLocked(s) // the ticket that leaves last revokes its lease, or the lease ends
		}
	}
}

// forgetLocked removes a place that is gone from all lists.
func (d *Driver) forgetLocked(p *place) {
	if p.state == driver.Gone {
		return
	}
	p.state = driver.Gone
	p.over.Store(true)
	delete(d.byID, p.t.ID)
	d.dropKeyLocked(p)
	s := p.sess
	delete(s.places, p)
	s.used = time.Now()
	if s.queues[p.queue] == p {
		delete(s.queues, p.queue)
	}
	d.unwatchLocked(p)
	d.janitor.unscheduleLocked(p)
}

// unwatchLocked ends the place's own watch.
func (d *Driver) unwatchLocked(p *place) {
	if p.watch == nil {
		return
	}
	if p.watch.key == p.ownKey() {
		d.watched--
	}
	d.watcher.remove(p.watch)
	p.watch = nil
}

// onGone ends a place that the store has dropped, and notifies the core.
func (d *Driver) onGone(p *place) {
	d.mu.Lock()
	known := p.state == driver.Gone || p.mustLeave
	had := p.ownRev() != 0
	d.forgetLocked(p)
	d.mu.Unlock()
	if !known && had {
		d.pushes.push(p.t.ID, driver.Status{State: driver.Gone})
	}
}

// setHeldLocked records that a place holds, and reports whether that is new.
func (d *Driver) setHeldLocked(p *place, next []successor) (news bool) {
	if p.state == driver.Held && len(p.next) == 0 {
		p.next = next
	}
	if p.state == driver.Held || p.state == driver.Gone || p.rev == 0 {
		return false
	}
	d.unwatchLocked(p) // the watch on its predecessor
	p.state, p.next = driver.Held, next
	d.janitor.scheduleCheckLocked(p, ownWatchDelay)
	return true
}

// onWake handles a wake-up.
func (d *Driver) onWake(s *session, m message) {
	d.mu.Lock()
	var news []*place
	for _, p := range d.byKey[m.key] {
		switch {
		case p.rev == 0:
			p.earlyWakes = append(p.earlyWakes, m)
		case m.gone && p.ownRev() == m.rev:
			news = append(news, p)
		case !m.gone && m.about(p.rev) && d.setHeldLocked(p, m.next):
			news = append(news, p)
		}
	}
	if m.gone { // an owner's ticket is found by its own key
		for p := range s.places {
			if p.member == m.key && p.memberRev == m.rev {
				news = append(news, p)
			}
		}
	}
	d.mu.Unlock()
	for _, p := range news {
		if m.gone {
			d.onGone(p)
		} else {
			d.pushes.push(p.t.ID, driver.Status{State: driver.Held, Token: uint64(p.rev)})
		}
	}
}

// setPlacedLocked records the revision and state of a place that was found or made, and
// applies the wake-ups that came before. It returns the state to answer.
func (d *Driver) setPlacedLocked(p *place, rev int64, s driver.State) driver.State {
	p.rev = rev
	if s == driver.Waiting {
		p.waited = true
	}
	for _, m := range p.earlyWakes {
		if m.about(rev) && !m.gone {
			s, p.next = driver.Held, m.next
		}
	}
	p.earlyWakes = nil
	if p.state == driver.Gone {
		return driver.Gone
	}
	if p.state != driver.Held { // a wake-up may have overtaken the answer
		p.state = s
	}
	if p.state == driver.Held {
		d.janitor.scheduleCheckLocked(p, ownWatchDelay)
	} else {
		d.janitor.scheduleCheckLocked(p, d.janitor.watchDelay(p.t.TTL))
	}
	return p.state
}
