package holdfast

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// acquire waits until h, which is new, holds. With try, acquire does not wait
// for a turn and does not overtake waiters.
func (q *queue) acquire(ctx context.Context, h *Hold, try bool) error {
	h.wait.try = try
	q.mu.Lock()
	if q.admitReader(h) {
		q.mu.Unlock()
		return nil
	}
	if h.wait.try {
		if err := q.tryBlocked(); err != nil {
			q.mu.Unlock()
			return err
		}
		q.tryCount++
	}
	q.waiters.pushBack(h)
	q.ensureJoiner()
	for {
		switch {
		case h.wait.err != nil:
			q.mu.Unlock()
			return h.wait.err
		case h.ticket != nil && q.c.closing(): // Close may have missed this grant
			q.mu.Unlock()
			return q.giveUpWait(h, nil)
		case h.ticket != nil:
			if h.takeLocked() {
				q.mu.Unlock()
				return nil
			}
			// The grant was lost before this goroutine woke: back to the
			// front, and a new Join. A Try does not overtake goroutines that
			// came in the meantime.
			h.ticket, h.wait.local = nil, false
			if h.wait.try {
				if h.wait.err = q.tryBlocked(); h.wait.err != nil {
					continue
				}
				q.tryCount++
			}
			q.waiters.pushFront(h)
			q.ensureJoiner()
			continue
		case q.joiner == h && !q.c.closing():
			if q.reportWaitLocked(h, false) || q.reportPlaceLocked(h, false) {
				continue
			}
			q.joining = true
			q.mu.Unlock()
			q.join(ctx, h)
			q.joining = false
			if q.joiner == h && !h.queuedLocked() {
				q.passJoiner() // a local hand-off overtook its Join
			}
			if !h.queuedLocked() || ctx.Err() == nil && !q.c.closing() {
				continue
			}
		}
		if q.c.closing() { // Close wakes only those that it finds asleep
			q.mu.Unlock()
			return q.giveUpWait(h, nil)
		}
		wake := h.wait.wakeUp
		if wake == nil {
			wake = make(chan struct{}, 1)
			h.wait.wakeUp = wake
		}
		if q.joiner != h && (q.reportWaitLocked(h, true) || q.reportPlaceLocked(h, true)) {
			continue
		}
		q.mu.Unlock()
		over := ctx.Done()
		if over == nil { // receiving from one channel is cheaper than a select
			<-wake
			q.mu.Lock()
			continue
		}
		select {
		case <-wake:
			q.mu.Lock()
		case <-over:
			return q.giveUpWait(h, ctx)
		}
	}
}

// giveUpWait ends a wait because its context ended, or, with a nil ctx, because
// of Shutdown or Close.
func (q *queue) giveUpWait(h *Hold, ctx context.Context) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	err := error(&nameError{name: q.name(), err: ErrClosed})
	if ctx != nil && !q.c.closing() {
		err = waitError(ctx, q.name(), h.wait.askedAt, parseHolder(q.holder()))
	}
	return q.withdraw(h, err)
}

// join sends one Join for the pending ticket; h is the joiner. The queue has
// the result afterwards: a grant, a place, a failure, or a reason to try again,
// in which case h is still the joiner.
//
// join is called without q.mu and returns with q.mu locked, so that no
// successor starts before the reply is processed.
func (q *queue) join(ctx context.Context, h *Hold) {
	t := q.pending // only the joiner changes it
	if !q.awaitJoinAllowed(ctx, h, t) {
		return
	}
	if !h.wait.try {
		if !q.c.subscription.ensure(ctx) {
			q.mu.Lock()
			return
		}
		q.c.renewer.track(t)
	}
	call := new(callCtx)
	q.mu.Lock()
	now := q.c.clock.now()
	if t.joinSentAt == 0 || !t.joinPending { // no Join can have taken effect yet
		t.joinSentAt = now
	}
	t.joinsSent++
	ttl := q.key.ttl
	limit := min(q.laneHealth.requestTimeout(requestJoin, callTimeout(ttl), ttl*2/3), max(t.joinSentAt.add(ttl).sub(now), ttl/50))
	if h.wait.try {
		limit = min(limit, max(h.retryBudget()-time.Since(h.wait.askedAt), time.Millisecond))
	}
	call.begin(ctx, limit)
	q.joinCall = call
	closing := q.c.closing()
	q.mu.Unlock()
	if closing {
		call.stop()
	}
	sent := q.laneHealth.joinSent(&q.key, h.troubleDelay()/2)
	st, err := q.c.drv.Join(call, &t.Ticket, !h.wait.try)
	q.laneHealth.joinEnded(call, sent, err)
	call.end()

	q.mu.Lock()
	q.joinCall = nil
	if err != nil && call.storeSilent {
		err = q.laneHealth.silenceError(driver.Unknown)
	}
	if err != nil {
		q.onJoinError(h, t, err)
		return
	}
	q.onJoinReply(h, t, st, sent)
}

// awaitJoinAllowed waits until a Join may be sent. It pauses before a
// repetition, waits for a store that is not ready, and, after a silence longer
// than a lease, waits until the store has replied again. When no Join is needed
// any more, it returns false with q.mu locked.
func (q *queue) awaitJoinAllowed(ctx context.Context, h *Hold, t *ticket) bool {
	var pause time.Duration
	var after instant
	q.mu.Lock()
	now := q.c.clock.now()
	if t.joinsSent > 0 {
		pause = backOff(int(t.joinsSent), q.key.ttl)
	}
	if t.extra != nil {
		pause = max(pause, t.extra.notBefore.sub(now))
		after = t.extra.awaitReplyAfter
	}
	placed := q.hadPlace(h)
	q.mu.Unlock()
	if pause > 0 {
		q.laneHealth.probeAfterFailure(&q.key, h.troubleDelay()/2)
		if !q.pause(ctx, pause) {
			q.mu.Lock()
			return false
		}
	}
	if since, long := q.laneHealth.silentLongerThan(q.key.ttl); long {
		after = max(after, since)
	}
	if after == 0 || q.awaitStore(ctx, h, after, placed) {
		return true
	}
	q.mu.Lock()
	if ctx.Err() == nil && !q.c.closing() {
		q.onJoinError(h, t, q.laneHealth.silenceError(driver.Unavailable))
	}
	return false
}

// awaitStore waits until the store has replied after an instant. If h had a
// place, the wait has no bound, else it ends with the retry budget.
func (q *queue) awaitStore(ctx context.Context, h *Hold, after instant, placed bool) bool {
	if !placed {
		budget := h.retryBudget()
		rest := max(budget-time.Since(h.wait.askedAt), budget-q.laneHealth.silence(), time.Millisecond)
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, rest)
		defer cancel()
	}
	return q.laneHealth.awaitReply(ctx, &q.key, after)
}
