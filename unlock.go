package holdfast

import (
	"context"
	"fmt"
	"slices"

	"github.com/holdfast-go/holdfast/driver"
)

// A hold ends in three ways that its user asks for: Unlock, Detach and MaxHold. Each
// ends the hold in the process first; the last hold of a root then releases the lock
// at the store. release.go has losses, close.go and shutdown.go the end of the client.

// finishLocked ends one hold: its Err, and its context. The root's mu guards it.
func (h *Hold) finishLocked(why error) {
	if h.endErr != nil {
		return
	}
	h.endErr = why
	if h.hctx != nil {
		h.hctx.cancel(why)
	}
}

// leaveLocked ends one hold, which no longer keeps its root, and frees its slot
// in the outer hold. The root's mu guards it.
func (h *Hold) leaveLocked(why error) {
	h.finishLocked(why)
	if h.left {
		return
	}
	h.left = true
	h.root.unlocksLeft--
	if h.outer != nil && !h.queue.key.readers() {
		h.outer.nested.freeSlot()
	}
}

// leave ends h but not the hold that h is nested in; with all, it also ends the
// holds nested in h. If h had ended earlier, it returns that end. If nothing of
// the root is left, last is true: the caller releases the queue, and makes the
// returned ticket, if any, leave. Both mutexes are held, so that no loss comes
// between the end of the hold and that of its ticket.
func (h *Hold) leave(why error, all bool) (t *ticket, last bool, over error) {
	r, q := h.root, h.root.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	r.mu.Lock()
	over = h.endErr
	if r.unlocksLeft == 0 || h.left && !all {
		r.mu.Unlock()
		return nil, false, over
	}
	h.leaveLocked(why)
	nestedInside := false
	if r.nested != nil {
		r.nested.holds = slices.DeleteFunc(r.nested.holds, func(n *Hold) bool {
			inside := n != h && n.isNestedIn(h)
			if all && inside {
				n.leaveLocked(why)
			}
			nestedInside = nestedInside || inside && !n.left
			return n.left
		})
	}
	if !nestedInside {
		h.maxHold.stop()
	}
	if last = r.unlocksLeft == 0; last {
		r.cleanUpLocked()
	}
	r.mu.Unlock()
	if last {
		t = q.dropHold((*Hold)(r))
	}
	return t, last, over
}

func (h *Hold) lostError(why LossReason) *LostError {
	return &LostError{Name: h.Name(), Reason: why, Token: h.token, Since: h.queue.c.clock.wall(h.since)}
}

// Unlock releases the hold. It needs no context and works after every context
// has ended; it blocks for at most a third of the TTL or 5 s, whichever is
// less, but for up to 100 ms however short the TTL is. It is idempotent: later
// and concurrent calls return what the first did.
//
// It returns nil when the lock was held until now and is released: at the
// store, to the next goroutine of this client, or, for a nested hold, to the
// outer one. During Shutdown a lock goes on at the store, never to a goroutine of
// this client. Unlock returns a *LostError when the hold was lost before, also
// if only the release found that; ErrClosed when Close had ended it; and a
// *StoreError when the store did not confirm: then the release is repeated in
// the background until the lease has ended. After MaxHold, Unlock releases the
// lock and returns the *LostError.
func (h *Hold) Unlock() error {
	if !h.made() {
		return ErrReleased
	}
	if at, ended, done := h.unlockOnce(); ended {
		h.root.reportDone(at, done)
	}
	return h.unlockErr
}

// unlockOnce unlocks, and reports whether this call ended the root, when, and with
// which error. The caller reports to the Observers afterwards, because they may
// call Unlock.
func (h *Hold) unlockOnce() (at instant, ended bool, done error) {
	h.once.Do(func() {
		at = h.queue.c.clock.now()
		over := h.endError()
		if over == nil {
			over = h.errAt(at)
		}
		if ended, done, h.unlockErr = h.release(); over != nil {
			h.unlockErr = over
		}
	})
	return at, ended, done
}

// release ends the hold, also at the store. err is why the hold had ended before,
// or else the result of the release; ended reports whether that ended the root,
// and done is the root's error for HoldDone. A hold that its MaxHold ended is
// released here, unless its bound was over.
func (h *Hold) release() (ended bool, done, err error) {
	r, q := h.root, h.root.queue
	if !q.c.beginCall() {
		r.ticket.abandonHolds() // Close may not have ended this hold yet
		return false, nil, h.endError()
	}
	defer q.c.calls.Done()
	t, last, err := h.leave(ErrReleased, false)
	if t != nil {
		gone, failed := t.leave()
		if gone {
			why := LossGone
			if !t.valid(q.c.clock.now()) {
				why = LossExpired // the Leave came when the lease was over
			}
			failed = h.lostError(why)
		}
		if done = failed; err == nil {
			if err = failed; gone {
				h.root.mu.Lock()
				h.endErr = failed
				h.root.mu.Unlock()
			}
		}
	}
	switch {
	case last:
		q.c.shutdown.holdEnded(r)
	case h.function && q.c.shutdown.closeBegan():
		r.ticket.stopHolds(phaseClosing) // Close ends a bare root that a nested function kept
	}
	return last, r.doneError(done), err
}

// Detach ends the hold in this process and keeps it at the store, for the next
// process of the same named owner, which has to take it within the TTL. The
// hold's context ends with ErrReleased. It blocks for one request, which
// renews the lease a last time; a hold with WithManualRenewal is detached without a
// request, and keeps the lease that it has. It returns an error without detaching when the
// hold has no named owner or is nested, a *LostError when it was lost, and a *StoreError
// when the store did not confirm: the hold has ended, and the store keeps it for what was
// left of its lease.
func (h *Hold) Detach() error {
	if !h.made() {
		return ErrReleased
	}
	if h.queue.key.owner == "" || h.outer != nil {
		return fmt.Errorf("holdfast: detach %q: only the outermost hold of a named owner can be detached", h.Name())
	}
	var err error
	first, ended := false, false
	h.once.Do(func() {
		first = true
		ended, err = h.detach()
		h.unlockErr = h.endError()
	})
	if !first { // it was unlocked or detached before
		return h.endError()
	}
	if ended {
		h.root.reportDone(h.queue.c.clock.now(), err)
	}
	return err
}

// detach ends h and keeps its ticket. ended reports whether that ended h.
func (h *Hold) detach() (ended bool, err error) {
	if err := h.Err(); err != nil {
		ended, _, _ := h.release() // of a hold that its MaxHold has ended
		return ended, err
	}
	q, t := h.queue, h.ticket
	if !q.c.beginCall() {
		t.abandonHolds()
		return false, h.endError()
	}
	defer q.c.calls.Done()
	ctx, cancel := context.WithTimeout(q.c.requestCtx, callTimeout(q.key.ttl))
	defer cancel()
	statuses, err := []driver.Status{{State: driver.Held}}, error(nil)
	if !q.key.manual {
		statuses, err = q.laneHealth.renewBatch(ctx, []driver.Ref{{Ticket: &t.Ticket, State: driver.Held}})
	}
	if err == nil {
		err = statuses[0].Err
	}
	q.mu.Lock()
	if t.state != driver.Held || err == nil && statuses[0].State != driver.Held {
		q.mu.Unlock()
		t.lose(LossGone)
		return false, h.Err()
	}
	if over := h.endError(); over != nil { // its MaxHold ended it meanwhile
		q.mu.Unlock()
		ended, _, _ := h.release()
		return ended, over
	}
	h.root.end(ErrReleased)
	q.endTicket(t, kept)
	q.mu.Unlock()
	q.c.shutdown.holdEnded(h.root)
	if err != nil {
		return true, storeError("detach", h.Name(), err)
	}
	return true, nil
}
