package etcdlock

import (
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

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
