package etcdlock

import (
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// A place is what the driver knows of a ticket: where it stands at the store,
// as last heard, and by which lease it lives. All but the first group is
// guarded by Driver.mu.
type place struct {
	d    *Driver
	t    *driver.Ticket
	line string // what the keys of the line begin with

	sess  *session
	key   string // its place's key; set before the first request
	value string // of the key that is the ticket's own
	rev   int64  // create revision of the place's key: the token; 0 until known
	state driver.State
	over  atomic.Bool // the state is Gone, for ever
	due   time.Time   // when nobody asks until then, the ticket's time is over
	late  bool        // its time is over, or it left: it has to go

	// Of tickets of a named owner only.
	owner     *session // by which the owner's place lives
	member    string   // the ticket's own key
	memberRev int64

	early  []message // wake-ups that came before rev was known
	next   []succ    // who is behind, as the one who left before told
	waited bool      // it was not granted by its own Join
	before string    // the key before its own, as its Join has read it; until that is watched
	rival  string    // the key of the only one who was before it, if that is ours
	watch  *watch    // on the own key while it holds, on the predecessor's while it waits
	at     time.Time // when the minder looks at it
	heapAt int       // where it stands in the minder's heap, plus 1
}

// ownKey is the key that is this ticket's alone.
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

// find returns what is known of a ticket, nil for nothing. The caller has mu.
func (d *Driver) find(t *driver.Ticket) *place {
	if p, ok := t.Aux.(*place); ok && (p.d == d || p.over.Load()) {
		return p
	}
	return d.byID[t.ID]
}

// enter begins a place in a session; its key is free to use. Should nobody hear
// of it, the minder sees that it goes when its time is over: a Join may be
// carried out when all who asked for it have given up, and the session lives.
// The caller has mu.
func (d *Driver) enter(t *driver.Ticket, s *session) *place {
	p := &place{d: d, t: t, line: d.keys.line(t.Name), sess: s}
	p.value = p.record().encode()
	if t.Owner == "" {
		if t.Limit == 1 && s.lines[p.line] == nil {
			p.key = recipe(p.line, s.hex)
			s.lines[p.line] = p
		} else {
			p.key = placeKey(p.line, t.Limit, t.Units, s.hex, t.ID)
		}
		d.byKey[p.key] = append(d.byKey[p.key], p)
	}
	p.due = time.Now().Add(driver.Keep(t.TTL))
	s.places[p] = struct{}{}
	t.Aux = p
	d.byID[t.ID] = p
	d.minder.schedule(p, p.due)
	return p
}

// house gives an owner's ticket the place that it shares. The caller has mu.
func (d *Driver) house(p *place, owner *session, key string) {
	d.unhouse(p)
	p.owner, p.key = owner, key
	owner.places[p] = struct{}{}
	d.byKey[key] = append(d.byKey[key], p)
}

func (d *Driver) unhouse(p *place) {
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
			d.dropSession(s) // its lease is revoked by whoever leaves last, or ends
		}
	}
}

// forget takes a place that is gone out of all lists. The caller has mu.
func (d *Driver) forget(p *place) {
	if p.state == driver.Gone {
		return
	}
	p.state = driver.Gone
	p.over.Store(true)
	delete(d.byID, p.t.ID)
	d.unhouse(p)
	s := p.sess
	delete(s.places, p)
	s.used = time.Now()
	if s.lines[p.line] == p {
		delete(s.lines, p.line)
	}
	d.unwatch(p)
	d.minder.drop(p)
}

// unwatch ends the place's own watch. The caller has mu.
func (d *Driver) unwatch(p *place) {
	if p.watch == nil {
		return
	}
	if p.watch.key == p.ownKey() {
		d.watched--
	}
	d.watcher.remove(p.watch)
	p.watch = nil
}

// goneNow ends a place that the store has dropped, and tells.
func (d *Driver) goneNow(p *place) {
	d.mu.Lock()
	known := p.state == driver.Gone || p.late
	had := p.ownRev() != 0
	d.forget(p)
	d.mu.Unlock()
	if !known && had {
		d.push(p.t.ID, driver.Place{State: driver.Gone})
	}
}

// held notes that a place holds, and says whether that is news. The caller has
// mu.
func (d *Driver) held(p *place, next []succ) (news bool) {
	if p.state == driver.Held && len(p.next) == 0 {
		p.next = next
	}
	if p.state == driver.Held || p.state == driver.Gone || p.rev == 0 {
		return false
	}
	d.unwatch(p) // that of its predecessor
	p.state, p.next = driver.Held, next
	d.minder.look(p, ownDelay)
	return true
}

// told takes a wake-up.
func (d *Driver) told(s *session, m message) {
	d.mu.Lock()
	var news []*place
	for _, p := range d.byKey[m.key] {
		switch {
		case p.rev == 0:
			p.early = append(p.early, m)
		case m.gone && p.ownRev() == m.rev:
			news = append(news, p)
		case !m.gone && m.about(p.rev) && d.held(p, m.next):
			news = append(news, p)
		}
	}
	if m.gone { // of an owner's ticket: by its own key
		for p := range s.places {
			if p.member == m.key && p.memberRev == m.rev {
				news = append(news, p)
			}
		}
	}
	d.mu.Unlock()
	for _, p := range news {
		if m.gone {
			d.goneNow(p)
		} else {
			d.push(p.t.ID, driver.Place{State: driver.Held, Token: uint64(p.rev)})
		}
	}
}

// known notes where a place was found, or made, and applies the wake-ups that
// came before that. It returns the state to answer. The caller has mu.
func (d *Driver) known(p *place, rev int64, s driver.State) driver.State {
	p.rev = rev
	if s == driver.Waiting {
		p.waited = true
	}
	for _, m := range p.early {
		if m.about(rev) && !m.gone {
			s, p.next = driver.Held, m.next
		}
	}
	p.early = nil
	if p.state == driver.Gone {
		return driver.Gone
	}
	if p.state != driver.Held { // a wake-up may have overtaken
		p.state = s
	}
	if p.state == driver.Held {
		d.minder.look(p, ownDelay)
	} else {
		d.minder.look(p, waitDelay)
	}
	return p.state
}

// graves are the ids of tickets that may not join any more, for the driver's
// own use: the tombstones at the store are for requests on their way.
type graves struct {
	young, old map[string]struct{}
	turned     time.Time
}

const requestAge = time.Minute

func (g *graves) add(id string) {
	if g.young == nil || time.Since(g.turned) > requestAge {
		g.old, g.young, g.turned = g.young, make(map[string]struct{}), time.Now()
	}
	g.young[id] = struct{}{}
}

func (g *graves) has(id string) bool {
	_, a := g.young[id]
	_, b := g.old[id]
	return a || b
}
