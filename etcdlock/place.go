package etcdlock

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/tracker"
)

// place is the driver's knowledge of a ticket: its status at the store, as last
// reported, and the sessions that it depends on.
type place struct {
	all   *places
	t     *driver.Ticket
	queue string      // the prefix of the queue's keys
	value string      // of the ticket's own key
	over  atomic.Bool // the state is Gone, for good

	sess *session
	progress
}

// progress has all that changes about a place. places.mu guards it.
type progress struct {
	tracker.Ticket        // while MustLeave, its key must be removed
	left           bool   // the core has given it up
	key            string // the key of its place; set before the first request
	rev            int64  // create revision of the place's key: the token; 0 until known

	// Of tickets of a named owner only.
	member    string   // the ticket's own key; never changed
	owner     *session // the session of the owner's place
	memberRev int64    // create revision of the ticket's own key

	earlyWakes      []message   // wake-ups that came before rev was known
	next            []successor // the next waiters, as the previous holder named them
	waited          bool        // its own Join did not grant it
	predecessorKey  string      // the key before its own, as its Join read it; empty once it is watched
	onlyPredecessor string      // the key of its only predecessor, if that is ours
	deep            bool        // it joined behind more than deepQueue places
	before          *entry      // the place before its own, as last read; nil where not deep or not known
	watch           *watch      // on its own key while it holds, on its predecessor's while it waits
	checkAt         time.Time   // the time of the janitor's next check
	heapIndex       int32       // its index in the janitor's schedule, plus 1
}

// places has the places of a driver, and when to check each. The mutexes of
// sessions, and those below it, are taken under mu.
type places struct {
	*cluster
	pushes  *pushes
	watcher *watcher

	mu       sync.Mutex
	tickets  tracker.Set[string, *place]
	byKey    map[string][]*place
	watched  int // watches on keys of the driver's own places
	schedule schedule
}

// ownKey returns the key that belongs to this ticket alone.
func (p *progress) ownKey() string {
	if p.member != "" {
		return p.member
	}
	return p.key
}

// ownRev returns the create revision of that key; 0 until it is known.
func (p *progress) ownRev() int64 {
	if p.member != "" {
		return p.memberRev
	}
	return p.rev
}

// held returns the status of a place that holds.
func (p *progress) held() driver.Status {
	return driver.Status{State: driver.Held, Token: uint64(p.rev)}
}

// findLocked returns the place of a ticket, or nil if the driver knows none.
func (ps *places) findLocked(t *driver.Ticket) *place {
	if p, ok := t.DriverData.(*place); ok && (p.all == ps || p.over.Load()) {
		return p
	}
	return ps.tickets.Find(t.ID)
}

// enter returns the place of a ticket, and adds one to a session, with a key that is
// free to use, if there is none. It returns nil if the ticket must stay gone. If no
// answer about the place ever comes, the janitor removes it when its time is over: a
// Join may be carried out after all its callers have given up, and the session lives
// on.
func (ps *places) enter(t *driver.Ticket, s *session) *place {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	p := ps.findLocked(t)
	if p != nil && !p.sess.isOver() {
		return p
	}
	if p != nil {
		// An earlier Join of the ticket, which may have been carried out, was
		// in a session that is over: any place that it made ended with the
		// session.
		ps.forgetLocked(p)
	}
	p, _ = ps.tickets.Enter(t.ID, func() *place {
		p := &place{all: ps, t: t, queue: ps.keys.queue(t.Name), sess: s}
		if t.Owner != "" {
			p.member = ps.keys.members(t.Name, t.Owner) + plain.Encode(t.ID)
		}
		p.value = record{id: t.ID, owner: t.Owner, ttl: t.TTL, meta: t.Meta}.encode()
		if t.Owner == "" {
			key := placeKey(p.queue, t.Limit, t.Units, s.hex, t.ID)
			if t.Limit == 1 && s.queues[p.queue] == nil {
				key = recipe(p.queue, s.hex)
				s.queues[p.queue] = p
			}
			ps.setKeyLocked(p, key)
		}
		p.Until = time.Now().Add(driver.Keep(t.TTL))
		s.places[p] = struct{}{}
		s.use()
		t.DriverData = p
		ps.schedule.set(p, p.Until)
		return p
	})
	return p
}

// setKeyLocked gives a place another key, or none.
func (ps *places) setKeyLocked(p *place, key string) {
	ps.dropKeyLocked(p)
	if p.key = key; key != "" {
		ps.byKey[key] = append(ps.byKey[key], p)
	}
}

// dropKeyLocked ends what a place has to do with its key, and with the owner's session.
func (ps *places) dropKeyLocked(p *place) {
	others := slices.DeleteFunc(ps.byKey[p.key], func(q *place) bool { return q == p })
	if ps.byKey[p.key] = others; len(others) == 0 {
		delete(ps.byKey, p.key)
	}
	if s := p.owner; s != nil {
		p.owner = nil
		delete(s.places, p)
		s.release()
	}
}

// useLongKey gives a ticket the long form of its key.
func (ps *places) useLongKey(p *place) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	ps.setKeyLocked(p, placeKey(p.queue, p.t.Limit, p.t.Units, p.sess.hex, p.t.ID))
}

// share gives an owner's ticket the place that it shares, or none.
func (ps *places) share(p *place, owner *session, key string) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if owner != nil {
		owner.use() // first, because the place may have been in that session
	}
	ps.setKeyLocked(p, key)
	if p.owner = owner; owner != nil {
		owner.places[p] = struct{}{}
	}
}

// forgetLocked removes a place that is gone from all lists.
func (ps *places) forgetLocked(p *place) {
	if p.State == driver.Gone {
		return
	}
	p.Left()
	p.over.Store(true)
	ps.tickets.Forget(p.t.ID, false)
	ps.dropKeyLocked(p)
	s := p.sess
	delete(s.places, p)
	s.release()
	if s.queues[p.queue] == p {
		delete(s.queues, p.queue)
	}
	ps.unwatchLocked(p)
	ps.schedule.places.Remove(p)
}

// forget is forgetLocked. With again, the ticket may join again.
func (ps *places) forget(p *place, again bool) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	ps.forgetLocked(p)
	if again {
		p.t.DriverData = nil
	}
}

// snapshot returns the progress of a place as it is now.
func (ps *places) snapshot(p *place) progress {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	return p.progress
}

// addTombstone makes a ticket stay gone.
func (ps *places) addTombstone(id string) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	ps.tickets.Tombstones.Add(id)
}

// phase says how far a ticket has come, as far as the driver knows.
type phase uint8

const (
	unknown    phase = iota // it has no place
	gone                    // it must stay gone
	leaving                 // the core has given it up, and the store has not confirmed that
	overdue                 // its place must be removed
	unanswered              // it may have a place: no Join was answered
	answered                // it has a place
)

// find returns the place of a ticket, nil for none, and the ticket's phase.
func (ps *places) find(t *driver.Ticket) (*place, phase) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	p := ps.findLocked(t)
	switch {
	case p == nil && !ps.tickets.Gone(t.ID):
		return nil, unknown
	case p == nil || p.over.Load():
		return p, gone
	case p.left:
		return p, leaving
	case p.MustLeave:
		return p, overdue
	case p.ownRev() == 0:
		return p, unanswered
	}
	return p, answered
}

// mustLeave makes the place of a ticket leave, and returns it: from now on no answer
// reports the place. If there is none, it reports whether the ticket has a tombstone.
func (ps *places) mustLeave(t *driver.Ticket) (p *place, buried bool) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	p = ps.findLocked(t)
	if p == nil || p.over.Load() {
		return nil, ps.tickets.Tombstones.Has(t.ID)
	}
	p.MustLeave = true
	return p, false
}

// giveUp records that the core has given tickets up.
func (ps *places) giveUp(refs []driver.Ref) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for _, ref := range refs {
		if p := ps.findLocked(ref.Ticket); p != nil {
			p.left = true
		}
	}
}

// setRev records the create revision of the ticket's own key.
func (ps *places) setRev(p *place, rev int64) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if p.member != "" {
		p.memberRev = rev
	} else {
		p.rev = rev
	}
}

// onPlaced records a place that was found or made, and applies the wake-ups that
// came before. It returns the state to answer.
func (ps *places) onPlaced(p *place, r joined) driver.State {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	p.rev = r.rev
	p.waited = p.waited || r.state == driver.Waiting
	for _, m := range p.earlyWakes {
		if m.about(p.rev) && !m.gone {
			r.state, p.next = driver.Held, m.next
		}
	}
	p.earlyWakes = nil
	// A wake-up may have overtaken the answer.
	now := p.Reply(driver.Status{State: r.state, Token: uint64(p.rev), Lease: driver.Keep(p.t.TTL)}, time.Now())
	if r.pred != nil && p.member == "" {
		p.predecessorKey = r.pred.key
	}
	if r.pred != nil && r.pred.ours && r.place.Ahead == 1 && p.t.Limit == 1 {
		p.onlyPredecessor = r.pred.key
	}
	if r.place.Ahead > deepQueue && p.t.Limit == 1 {
		p.deep, p.before = true, r.pred
	}
	switch {
	case now.State == driver.Gone:
	case now.State == driver.Held:
		ps.schedule.check(p, ownWatchDelay)
	case r.pred != nil && !r.pred.ours:
		ps.schedule.check(p, 0) // no client will wake it
	default:
		ps.schedule.check(p, ps.schedule.watchDelay(p.t.TTL))
	}
	return now.State
}

// onAnswer starts the time of a place anew. Since the place was read, its time may
// have ended, or it may have left; another ticket may hold by now. Then onAnswer
// returns false. The check and the new due time share one critical section, so that
// nothing comes between them.
func (ps *places) onAnswer(p *place) bool {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	return !p.MustLeave && p.Renewed(driver.Status{State: p.State, Lease: driver.Keep(p.t.TTL)}, time.Now())
}

// onGone ends a place that the store has dropped, and notifies the core.
func (ps *places) onGone(p *place) {
	ps.mu.Lock()
	news := p.State != driver.Gone && !p.MustLeave && p.ownRev() != 0
	ps.forgetLocked(p)
	ps.mu.Unlock()
	if news {
		ps.pushes.push(p.t.ID, driver.Status{State: driver.Gone})
	}
}

// onSessionLost ends the places of a session whose lease is over.
func (ps *places) onSessionLost(s *session) {
	ps.mu.Lock()
	var gone []*place
	for p := range s.places {
		// A place whose Join has no answer yet joins again in another session.
		if p.ownRev() != 0 {
			gone = append(gone, p)
		}
	}
	ps.mu.Unlock()
	for _, p := range gone {
		ps.onGone(p)
	}
}

// onHeldLocked records that a place holds, and reports whether that is new.
func (ps *places) onHeldLocked(p *place, next []successor) (news bool) {
	if p.State == driver.Held && len(p.next) == 0 {
		p.next = next
	}
	if p.rev == 0 || !p.Push(p.held()) {
		return false
	}
	ps.unwatchLocked(p) // the watch on its predecessor
	p.next = next
	ps.schedule.check(p, ownWatchDelay)
	return true
}

// onWake handles a wake-up.
func (ps *places) onWake(s *session, m message) {
	ps.mu.Lock()
	var news []*place
	for _, p := range ps.byKey[m.key] {
		switch {
		case p.rev == 0:
			p.earlyWakes = append(p.earlyWakes, m)
		case m.gone && p.ownRev() == m.rev:
			news = append(news, p)
		case !m.gone && m.about(p.rev) && ps.onHeldLocked(p, m.next):
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
	ps.mu.Unlock()
	for _, p := range news {
		if m.gone {
			ps.onGone(p)
		} else {
			ps.pushes.push(p.t.ID, p.held())
		}
	}
}

// onRead acts on the status that readPlaces read for a place: it notifies the core,
// or begins a watch.
func (ps *places) onRead(p *place, s placeRead) {
	ps.mu.Lock()
	alive := p.State != driver.Gone && !p.MustLeave
	switch {
	case !alive:
	case s.err != nil:
		ps.schedule.check(p, ps.schedule.watchDelay(p.t.TTL))
	case s.state == driver.Held && p.watch == nil && ps.watched < maxOwnWatches:
		ps.watched++
		p.watch = ps.watcher.add(p.ownKey(), s.rev+1, func(e event) {
			if e.gap {
				ps.checkAgain(p, driver.Held, 0)
			} else if e.deleted { // F69
				ps.onGone(p)
			}
		})
	case s.state == driver.Waiting && p.State == driver.Waiting && p.watch == nil && s.pred != nil:
		ps.watchPredecessorLocked(p, s.pred.key, s.rev+1)
	}
	ps.mu.Unlock()
	switch {
	case !alive || s.err != nil:
	case s.state == driver.Gone:
		ps.onGone(p)
	case s.news:
		ps.pushes.push(p.t.ID, p.held())
	}
}

// watchPredecessorLocked watches the key before a waiting place. The predecessor may
// have sent a wake-up; then the place holds already, or will at once.
func (ps *places) watchPredecessorLocked(p *place, key string, rev int64) {
	p.watch = ps.watcher.add(key, rev, func(e event) {
		if e.gap || e.deleted {
			ps.checkAgain(p, driver.Waiting, 5*time.Millisecond)
		}
	})
}

// checkAgain ends the watch of a place in that state, and makes the janitor read the place.
func (ps *places) checkAgain(p *place, s driver.State, delay time.Duration) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if p.State == s {
		ps.unwatchLocked(p)
		ps.schedule.check(p, delay)
	}
}

// unwatchLocked ends the place's own watch.
func (ps *places) unwatchLocked(p *place) {
	if p.watch == nil {
		return
	}
	if p.watch.key == p.ownKey() {
		ps.watched--
	}
	ps.watcher.remove(p.watch)
	p.watch = nil
}
