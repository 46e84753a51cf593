package etcdlock

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/heap"
)

const (
	// ownWatchDelay is the time that a place holds before its own key is watched, and
	// minWatchDelay the time that it waits before its predecessor's key is watched:
	// a place that comes and goes quickly gets no watch at all. minWatchDelay may be
	// longer: most predecessors that leave without a wake-up have died, and
	// their leases took longer to end; and a foreign predecessor is watched at
	// once.
	ownWatchDelay = 200 * time.Millisecond
	minWatchDelay = time.Second
	// watchDelayTimes is the delay of a waiting place, in multiples of the time that
	// an answer takes, if that is more than minWatchDelay: with a slow server, every
	// waiter has soon waited for a second.
	watchDelayTimes = 20
	// maxOwnWatches bounds the watches on the driver's own keys; the other places are
	// read with each Renew.
	maxOwnWatches = 256
	// idleTTLs is the number of its TTLs for which a session without a place is
	// kept.
	idleTTLs = 20
)

// janitor is the goroutine for background work: it keeps sessions alive, removes
// places that the core does not renew, and watches places that hold or wait for
// longer. These watches wake a waiter whose predecessor goes without a wake-up:
// a client that died, or one that does not use our layout.
type janitor struct {
	d    *Driver
	wake chan struct{}
	// schedule orders the places by the time of their next check; guarded by
	// Driver.mu.
	schedule       heap.Heap[*place, byCheck]
	nextRound      time.Time // time of run's next round
	checking       bool      // checkPlaces is running; guarded by Driver.mu
	lastReadFailed bool      // the last read had no answer: the next one reads a single place; guarded by Driver.mu
}

// watchDelay returns how long a place waits before its predecessor's key is
// watched. Without that watch, a renewal notices at the latest that the
// predecessor has gone.
func (m *janitor) watchDelay(ttl time.Duration) time.Duration {
	return m.d.pace.times(watchDelayTimes, minWatchDelay, max(minWatchDelay, ttl/3))
}

func (m *janitor) start(d *Driver) {
	m.d = d
	m.wake = make(chan struct{}, 1)
	d.life.run(m.run)
}

func (m *janitor) kick() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// scheduleCheckLocked schedules a check of a place after a delay, or when its time is over if
// that is earlier.
func (m *janitor) scheduleCheckLocked(p *place, delay time.Duration) {
	at := time.Now().Add(delay)
	if p.expiresAt.Before(at) {
		at = p.expiresAt
	}
	m.scheduleLocked(p, at)
}

func (m *janitor) scheduleLocked(p *place, at time.Time) {
	p.checkAt = at
	m.schedule.Set(p)
	if m.nextRound.IsZero() || at.Before(m.nextRound) {
		m.nextRound = at
		m.kick()
	}
}

// unscheduleLocked drops the next check of a place.
func (m *janitor) unscheduleLocked(p *place) { m.schedule.Remove(p) }

func (m *janitor) run() {
	life := m.d.life.ctx
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for life.Err() == nil {
		// Requests may go unanswered until their time is over, and sessions
		// have to be kept alive meanwhile. So checkPlaces runs on a goroutine of its
		// own.
		if over, reads := m.takeDue(); len(over)+len(reads) > 0 {
			m.d.life.run(func() { m.checkPlaces(over, reads) })
		}
		at := m.tendSessions()
		timer.Reset(max(0, time.Until(at)))
		select {
		case <-timer.C:
		case <-m.wake:
		case <-life.Done():
		}
	}
}

// takeDue takes the work that is due off the heap: places whose time is over, and
// places to read. It returns nothing while checkPlaces is running.
func (m *janitor) takeDue() (over, reads []*place) {
	d := m.d
	d.mu.Lock()
	defer d.mu.Unlock()
	if m.checking {
		return nil, nil
	}
	now := time.Now()
	most := maxReads
	if m.lastReadFailed {
		most = 1
	}
	for len(m.schedule) > 0 && len(reads) < most && len(over) < maxReads {
		p := m.schedule[0]
		if p.checkAt.After(now) {
			break
		}
		if !p.expiresAt.After(now) {
			p.mustLeave = true
			over = append(over, p)
			m.scheduleLocked(p, now.Add(p.t.TTL/10+50*time.Millisecond)) // in case the removal fails
			continue
		}
		m.scheduleLocked(p, p.expiresAt)
		switch {
		case p.ownRev() == 0 || p.watch != nil || !d.pushes.wanted() || p.state == driver.Held && d.watched >= maxOwnWatches:
		case p.state == driver.Waiting && p.predecessorKey != "":
			// The watch begins at the revision of the place's Join. The server
			// serves it late, at its next tick, but it costs no other request.
			p.watch = d.watcher.add(p.predecessorKey, p.rev+1, func(e event) { d.predEvent(p, e) })
			p.predecessorKey = ""
		default:
			reads = append(reads, p)
		}
	}
	m.checking = len(over)+len(reads) > 0
	return over, reads
}

// checkPlaces removes and reads the places that takeDue returned, on a goroutine of its
// own.
func (m *janitor) checkPlaces(over, reads []*place) {
	d := m.d
	defer func() {
		d.mu.Lock()
		m.checking = false
		d.mu.Unlock()
		m.kick()
	}()
	if len(over) > 0 {
		refs := make([]driver.Ref, len(over))
		for i, p := range over {
			refs[i] = driver.Ref{Ticket: p.t, State: driver.Waiting}
		}
		ctx, cancel := context.WithTimeout(d.life.ctx, max(over[0].t.TTL/3, time.Second))
		answers := d.leaveAll(ctx, refs)
		cancel()
		for i, a := range answers {
			d.mu.Lock()
			had := over[i].ownRev() != 0
			d.mu.Unlock()
			if a.Err == nil && had {
				d.pushes.push(refs[i].ID, driver.Status{State: driver.Gone})
			}
		}
	}
	for len(reads) > 0 {
		least := max(reads[0].t.TTL/6, 500*time.Millisecond)
		ctx, cancel := context.WithTimeout(d.life.ctx, d.pace.times(4, least, 4*least))
		n, seen, err := d.readPlaces(ctx, reads)
		cancel()
		d.mu.Lock()
		m.lastReadFailed = err != nil
		for _, p := range reads {
			if err != nil && p.state != driver.Gone {
				m.scheduleCheckLocked(p, m.watchDelay(p.t.TTL))
			}
		}
		d.mu.Unlock()
		if err != nil {
			return
		}
		for i, s := range seen {
			d.applyRead(reads[i], s)
		}
		reads = reads[n:]
	}
}

// applyRead acts on the status that readPlaces read for a place: it notifies the core,
// or begins a watch.
func (d *Driver) applyRead(p *place, s placeRead) {
	d.mu.Lock()
	if p.state == driver.Gone || p.mustLeave {
		d.mu.Unlock()
		return
	}
	switch {
	case s.err != nil:
		d.janitor.scheduleCheckLocked(p, d.janitor.watchDelay(p.t.TTL))
	case s.state == driver.Gone:
		d.mu.Unlock()
		d.onGone(p)
		return
	case s.state == driver.Held:
		if p.watch == nil && d.watched < maxOwnWatches {
			d.watched++
			own, rev := p.ownKey(), p.ownRev()
			p.watch = d.watcher.add(own, s.rev+1, func(e event) { d.ownEvent(p, rev, e) })
		}
		d.mu.Unlock()
		if s.news {
			d.pushes.push(p.t.ID, driver.Status{State: driver.Held, Token: uint64(p.rev)})
		}
		return
	case p.state == driver.Waiting && p.watch == nil && s.pred != nil:
		p.watch = d.watcher.add(s.pred.key, s.rev+1, func(e event) { d.predEvent(p, e) })
	}
	d.mu.Unlock()
}

// ownEvent handles an event of the key of a place that holds (F69).
func (d *Driver) ownEvent(p *place, rev int64, e event) {
	switch {
	case e.gap:
		d.mu.Lock()
		if p.state == driver.Held {
			d.unwatchLocked(p)
			d.janitor.scheduleCheckLocked(p, 0)
		}
		d.mu.Unlock()
	case e.deleted:
		d.onGone(p)
	}
}

// predEvent handles an event of the key before a waiting place. The predecessor
// may have sent a wake-up; then the place holds already, or will at once.
func (d *Driver) predEvent(p *place, e event) {
	if !e.gap && !e.deleted {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if p.state == driver.Waiting {
		d.unwatchLocked(p)
		d.janitor.scheduleCheckLocked(p, 5*time.Millisecond)
	}
}

// afterGap reports that pushes may have been lost: the core renews all its
// waiting tickets. The driver asks for keep-alives of its sessions, too,
// because it may have missed the end of one.
func (d *Driver) afterGap() {
	d.mu.Lock()
	for _, s := range d.leased {
		if !s.over && len(s.places) > 0 {
			s.sent = s.sent.Add(-s.ttl) // no longer fresh
			d.requestKeepAliveLocked(s)
		}
	}
	d.mu.Unlock()
	d.pushes.push("", driver.Status{})
}

// tendSessions keeps sessions alive, revokes those that have been without a place for
// long, and returns the time of the next round.
func (m *janitor) tendSessions() time.Time {
	d := m.d
	d.mu.Lock()
	defer d.mu.Unlock()
	at := time.Now().Add(time.Hour)
	if len(m.schedule) > 0 && !m.checking {
		at = m.schedule[0].checkAt
	}
	for _, s := range d.leased {
		if len(s.places) == 0 && !s.owned && since(s.used) > idleTTLs*s.ttl {
			d.dropSessionLocked(s)
			s.over = true
			d.life.runBriefly(func(ctx context.Context) { d.revoke(ctx, s.id) })
			continue
		}
		every := s.granted / 3
		if !s.wantedLocked() {
			// The lease ends, and takes with it the keys that may not be
			// deleted. The answer to one keep-alive after that reports the end.
			every = s.granted + maxLeaseDelay
		}
		if since(s.sent) >= every {
			d.requestKeepAliveLocked(s)
			if next := time.Now().Add(every / 4); next.Before(at) {
				at = next
			}
		} else if next := s.sent.Add(every); next.Before(at) {
			at = next
		}
	}
	m.nextRound = at
	return at
}

// maxLeaseDelay bounds the time by which a lease ends late.
const maxLeaseDelay = 2 * Granularity

// wantedLocked reports whether keep-alives of the session are of use. They are of
// none if every place in it is to go: a user who has lost a right cannot delete
// the keys, and only the end of the lease removes them.
func (s *session) wantedLocked() bool {
	for p := range s.places {
		if !p.mustLeave && !p.left {
			return true
		}
	}
	return len(s.places) == 0
}

// byCheck orders places by the time of their next check.
type byCheck struct{}

func (byCheck) Before(a, b *place) bool { return a.checkAt.Before(b.checkAt) }
func (byCheck) Index(p *place) *int32   { return &p.heapIndex }
