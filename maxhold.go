package holdfast

import "time"

// maxHoldTimer ends a hold that has a MaxHold, in two steps: at the bound the
// hold and its context end; a third of the TTL (at most 5 s) later the lock is
// released, unless Unlock came first. In between, the lock is kept and renewed,
// so that no other client holds it while the work stops.
type maxHoldTimer struct {
	until instant
	timer *time.Timer
}

// startMaxHoldLocked sets the timer of MaxHold. The root's mu guards it.
func (h *Hold) startMaxHoldLocked() {
	if d := h.wait.spec.maxHold; d > 0 {
		h.maxHold = &maxHoldTimer{until: h.since.add(d)}
		h.maxHold.timer = time.AfterFunc(d, h.onMaxHold)
	}
}

func (h *Hold) stopMaxHoldLocked() {
	if h.maxHold != nil {
		h.maxHold.timer.Stop()
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

// onMaxHold ends a hold that has reached its MaxHold, and the holds nested in
// it. They keep the lock until they are unlocked or onMaxHoldOver runs.
func (h *Hold) onMaxHold() {
	r := h.root
	err := h.lostError(LossMaxHold)
	ended := false
	r.mu.Lock()
	for n := range r.withNestedLocked() {
		if n.isNestedIn(h) && n.endErr == nil {
			ended = true
			n.finishLocked(err)
		}
	}
	if ended {
		h.maxHold.timer.Stop()
		h.maxHold.timer = time.AfterFunc(releaseTimeout(r.queue.key.ttl), h.onMaxHoldOver)
	}
	r.mu.Unlock()
	if ended && h == r {
		r.queue.c.report.ended(endedHold{r, r.queue.c.clock.now(), err})
	}
}

// onMaxHoldOver releases what a hold that reached its MaxHold still keeps.
func (h *Hold) onMaxHoldOver() {
	q := h.root.queue
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
