package holdfast

import "time"

// The timer of this file ends claims. It is apart from the renewals of renewer.go, so
// that no request that hangs can delay the report of a loss.

// suspendCheck is the interval at which the clock is read while tickets are
// held: timers stand still while the machine is suspended, claims do not.
const suspendCheck = time.Second

// watchClaim watches the end of a held ticket's claim. One timer serves a
// client. Renewals do not move the timer; when it fires, it reads the present
// claims.
func (r *renewer) watchClaim(t *ticket) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if t.renewal.removed {
		return
	}
	t.renewal.waiting = false
	t.renewal.end = instant(t.claim.Load())
	r.claimEnds.Set(t)
	if t.renewal.end < r.claimTimerAt {
		r.armClaimTimerLocked()
	}
}

// armClaimTimerLocked sets the timer for the first end.
func (r *renewer) armClaimTimerLocked() {
	r.claimTimerAt = never
	if len(r.claimEnds) == 0 || isDone(r.c.done) {
		return
	}
	now := r.c.clock.now()
	d := min(max(0, r.claimEnds[0].renewal.end.sub(now)), suspendCheck)
	r.claimTimerAt = now.add(d)
	if r.claimTimer == nil {
		r.claimTimer = time.AfterFunc(d, r.onExpiry)
	} else {
		r.claimTimer.Reset(d)
	}
}

// onExpiry runs when the timer fires, and ends the holds whose claims are over.
func (r *renewer) onExpiry() {
	now := r.c.clock.now()
	var over []*ticket
	r.mu.Lock()
	for len(r.claimEnds) > 0 && r.claimEnds[0].renewal.end <= now {
		t := r.claimEnds[0]
		if end := instant(t.claim.Load()); end > now { // was renewed
			t.renewal.end = end
			r.claimEnds.Set(t)
			continue
		}
		r.claimEnds.Remove(t)
		over = append(over, t)
	}
	r.armClaimTimerLocked()
	r.mu.Unlock()
	for _, t := range over {
		t.lose(LossExpired)
	}
}

// byDue orders the tickets of a lane by when they are due.
type byDue struct{}

func (byDue) Before(a, b *ticket) bool { return a.renewal.due < b.renewal.due }
func (byDue) Index(t *ticket) *int32   { return &t.renewal.dueIndex }

// byEnd orders tickets by the ends of their claims.
type byEnd struct{}

func (byEnd) Before(a, b *ticket) bool { return a.renewal.end < b.renewal.end }
func (byEnd) Index(t *ticket) *int32   { return &t.renewal.endIndex }

// byReady orders lanes by when they can send next.
type byReady struct{}

func (byReady) Before(a, b *lane) bool { return a.readyAt() < b.readyAt() }
func (byReady) Index(ln *lane) *int32  { return &ln.laneIndex }
