package holdfast

import "time"

// maxHoldTimer ends a hold that has a MaxHold, in two steps: at the bound the
// hold and its context end; a third of the TTL (at most 5 s) later the lock is
// released, unless Unlock came first. In between, the lock is kept and renewed,
// so that no other client holds it while the work stops.
type maxHoldTimer struct {
	hold  *Hold
	until instant
	timer *time.Timer
}

// startMaxHoldLocked sets the timer of MaxHold. The root's mu guards it.
func startMaxHoldLocked(h *Hold) {
	if d := h.wait.spec.maxHold; d > 0 {
		h.maxHold = &maxHoldTimer{hold: h, until: h.since.add(d)}
		h.maxHold.timer = time.AfterFunc(d, h.maxHold.onBound)
	}
}

// stop stops the timer, if there is one. The root's mu guards it.
func (m *maxHoldTimer) stop() {
	if m != nil {
		m.timer.Stop()
	}
}

// maxHoldEnd returns the instant at which MaxHold ends h, by the bound of h or
// of an outer hold; never, if there is no bound.
func (h *Hold) maxHoldEnd() instant {
	end := never
	for ; h != nil; h = h.outer {
		if h.maxHold != nil {
			end = min(end, h.maxHold.until)
		}
	}
	return end
}

// onBound ends a hold that has reached its MaxHold, and the holds nested in it.
// They keep the lock until they are unlocked or onOver runs.
func (m *maxHoldTimer) onBound() {
	h, r := m.hold, m.hold.root
	err := h.lostError(LossMaxHold)
	ended := false
	r.mu.Lock()
	for n := range r.holdsLocked() {
		if n.isNestedIn(h) && n.endErr == nil {
			ended = true
			n.finishLocked(err)
		}
	}
	if ended {
		m.timer.Stop()
		m.timer = time.AfterFunc(releaseTimeout(r.queue.key.ttl), m.onOver)
	}
	r.mu.Unlock()
	if ended && h.outer == nil {
		r.queue.c.report.ended(endedHold{r, r.queue.c.clock.now(), err})
	}
}

// onOver releases what a hold that reached its MaxHold still keeps.
func (m *maxHoldTimer) onOver() {
	h, q := m.hold, m.hold.root.queue
	if !q.c.beginCall() {
		return // Close has ended the hold
	}
	defer q.c.calls.Done()
	t, last, _ := h.leave(ErrReleased, true)
	if t != nil {
		q.c.cleaner.addHeld(t)
	}
	if last {
		q.c.shutdown.holdEnded(h.root)
		q.c.report.ended(endedHold{h.root, q.c.clock.now(), h.root.doneError(nil)})
	}
}
