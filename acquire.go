package holdfast

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// wait is the wait of one goroutine for its hold, and the state of the hold
// before its grant; queue.mu guards it. It is apart from Hold, so that the many
// holds of a program stay small. The goroutine sleeps in acquire until its queue
// grants the hold or ends the wait; while it is the joiner, it sends Join.
type wait struct {
	hold         *Hold
	spec         *spec
	calledAt     time.Time // when the user's call began, for a WaitError
	askedAt      time.Time
	begunAt      instant       // askedAt, on the client's clock
	wakeUp       chan struct{} // made when the goroutine has to sleep
	try          bool
	err          error     // why the wait ended without a hold
	spareTicket  *ticket   // for the first Join
	limitAtStore int64     // the queue's limit, after a LimitError
	storeErr     error     // why the store cannot give a place yet
	storeUntil   time.Time // the store surely refuses until then
	turnDue      bool      // LockWait was due: it is not the caller's turn
	storeDue     bool      // LockWait was due: storeErr
	local        bool      // another goroutine of this client handed the lock over
	placeDue     bool      // the function of WithWaiting was due
	newsSeen     uint16    // waiters.news when it was last called
	inCallback   bool      // a function of the user's runs, which may close the client
	uncounted    bool      // Shutdown or Close does not wait for this call; see endCallbackWait
}

// wake wakes the goroutine that sleeps in acquire, if any.
func (w *wait) wake() {
	if w.wakeUp == nil {
		return // the goroutine is not asleep
	}
	select {
	case w.wakeUp <- struct{}{}:
	default:
	}
}

// acquire waits until the hold, which is new, holds. With try, acquire does not
// wait for a turn and does not overtake waiters.
func (w *wait) acquire(ctx context.Context, try bool) error {
	h, q := w.hold, w.hold.queue
	w.try = try
	q.mu.Lock()
	if q.admitReader(h) {
		q.mu.Unlock()
		return nil
	}
	if try {
		if err := q.tryBlocked(); err != nil {
			q.mu.Unlock()
			return err
		}
	}
	q.waiters.pushBack(h)
	q.ensureJoiner()
	for {
		switch {
		case w.err != nil:
			q.mu.Unlock()
			return w.err
		case h.ticket != nil && q.c.closing(): // Close may have missed this grant
			q.mu.Unlock()
			return w.giveUpClosed()
		case h.ticket != nil:
			if w.takeGrantLocked() {
				q.mu.Unlock()
				return nil
			}
			// The grant was lost before this goroutine woke: back to the
			// front, and a new Join. A Try does not overtake goroutines that
			// came in the meantime.
			h.ticket, w.local = nil, false
			if try {
				if w.err = q.tryBlocked(); w.err != nil {
					continue
				}
			}
			q.waiters.pushFront(h)
			q.ensureJoiner()
			continue
		case q.waiters.joiner == h && !q.c.closing():
			if w.reportWaitLocked(false) || w.reportPlaceLocked(false) {
				continue
			}
			q.waiters.joining = true
			q.mu.Unlock()
			w.join(ctx)
			q.waiters.joining = false
			if q.waiters.joiner == h && !h.queuedLocked() {
				q.passJoiner() // a local hand-off overtook its Join
			}
			if !h.queuedLocked() || ctx.Err() == nil && !q.c.closing() {
				continue
			}
		}
		if q.c.closing() { // Close wakes only those that it finds asleep
			q.mu.Unlock()
			return w.giveUpClosed()
		}
		wake := w.wakeUp
		if wake == nil {
			wake = make(chan struct{}, 1)
			w.wakeUp = wake
		}
		if q.waiters.joiner != h && (w.reportWaitLocked(true) || w.reportPlaceLocked(true)) {
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
			return w.giveUp(ctx)
		}
	}
}

// takeGrantLocked turns the grant into a hold, on the goroutine that waited for
// it. It returns false if the grant was lost before. queue.mu guards the state.
func (w *wait) takeGrantLocked() bool {
	h := w.hold
	t, c := h.ticket, h.queue.c
	if t.state != driver.Held {
		return false
	}
	h.taken = true
	h.root = (*rootHold)(h)
	h.unlocksLeft = 1
	h.token = t.currentToken()
	if h.queue.key.readers() {
		h.token = t.storeToken << 8
	}
	h.since = c.clock.now()
	h.mu.Lock() // the timer may fire at once
	startMaxHoldLocked(h)
	h.mu.Unlock()
	return true
}

// giveUp ends the wait because ctx ended, or because of Shutdown or Close. With
// WithManualRenewal, a ticket that leaves has left when giveUp returns.
func (w *wait) giveUp(ctx context.Context) error {
	q := w.hold.queue
	q.mu.Lock()
	t, err := w.hold.ticket, q.closedError()
	if t == nil {
		t = q.pending
	}
	if !q.c.closing() {
		err = waitError(ctx, q.name(), w.calledAt, parseHolder(q.holder()))
	}
	err = q.withdraw(w.hold, err)
	q.mu.Unlock()
	if q.key.manual && t != nil {
		q.c.cleaner.awaitLeft(&t.Ticket)
	}
	return err
}

// giveUpClosed ends the wait because of Shutdown or Close, or because a callback has
// ended the goroutine.
func (w *wait) giveUpClosed() error {
	q := w.hold.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.withdraw(w.hold, q.closedError())
}

// giveUpUnlessReturned gives the wait up if a callback has ended the goroutine,
// so that the queue does not wait for it.
func (w *wait) giveUpUnlessReturned(returned *bool) {
	if !*returned {
		_ = w.giveUpClosed()
		w.hold.queue.c.queues.release(w.hold.queue)
	}
}

// join sends one Join for the pending ticket; the goroutine is the joiner. The
// queue has the result afterwards: a grant, a place, a failure, or a reason to
// try again, in which case the goroutine is still the joiner.
//
// join is called without queue.mu and returns with it locked, so that no
// successor starts before the reply is processed.
func (w *wait) join(ctx context.Context) {
	h, q := w.hold, w.hold.queue
	t := q.pending // only the joiner changes it
	if !w.awaitJoinAllowed(ctx, t) {
		return
	}
	if !w.try && !q.c.subscription.ensure(ctx) {
		q.mu.Lock()
		return
	}
	q.c.renewer.track(t)
	call := new(callCtx)
	q.mu.Lock()
	now := q.c.clock.now()
	if t.joinSentAt == 0 || !t.joinPending { // no Join can have taken effect yet
		t.joinSentAt = now
	}
	t.joinsSent++
	ttl := q.key.ttl
	limit := min(q.laneHealth.requestTimeout(requestJoin, callTimeout(ttl), ttl*2/3), max(t.joinSentAt.add(ttl).sub(now), ttl/50))
	if w.try {
		limit = min(limit, max(w.retryBudget()-time.Since(w.askedAt), time.Millisecond))
	}
	call.begin(ctx, limit)
	q.joinCall = call
	closing := q.c.closing()
	q.mu.Unlock()
	if closing {
		call.stop()
	}
	sent := q.laneHealth.joinSent(&q.key, w.troubleDelay()/2)
	st, err := q.c.drv.Join(call, &t.Ticket, !w.try)
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

// awaitJoinAllowed waits until a Join of t may be sent. It pauses before a
// repetition, waits for a store that is not ready, and, after a silence longer
// than a lease, waits until the store has replied again. When no Join is needed
// any more, it returns false with queue.mu locked.
func (w *wait) awaitJoinAllowed(ctx context.Context, t *ticket) bool {
	q := w.hold.queue
	var pause time.Duration
	var after instant
	q.mu.Lock()
	if t.joinsSent > 0 {
		pause = backOff(int(t.joinsSent), q.key.ttl)
	}
	if t.extra != nil {
		pause = max(pause, t.extra.notBefore.sub(q.c.clock.now()))
		after = t.extra.awaitReplyAfter
	}
	placed := w.hadPlace()
	q.mu.Unlock()
	if pause > 0 {
		q.laneHealth.probeAfterFailure(&q.key, w.troubleDelay()/2)
		if !w.pauseBeforeJoin(ctx, t, pause) {
			q.mu.Lock()
			return false
		}
	}
	if since, long := q.laneHealth.silentLongerThan(q.key.ttl); long {
		after = max(after, since)
	}
	if after == 0 || w.awaitStore(ctx, after, placed) {
		return true
	}
	q.mu.Lock()
	if ctx.Err() == nil && !q.c.closing() {
		q.onJoinError(w.hold, t, q.laneHealth.silenceError(driver.Unavailable))
	}
	return false
}

// pauseBeforeJoin waits for d before t joins again. A push about t, by which an earlier Join
// took effect, ends the pause. pauseBeforeJoin reports false if the wait is over, or its
// context or the client ends.
func (w *wait) pauseBeforeJoin(ctx context.Context, t *ticket, d time.Duration) bool {
	q := w.hold.queue
	timer := time.NewTimer(d)
	defer timer.Stop()
	for {
		q.mu.Lock()
		if w.wakeUp == nil {
			w.wakeUp = make(chan struct{}, 1)
		}
		wake, over, pushed := w.wakeUp, !w.hold.queuedLocked(), false
		if t.extra != nil && t.extra.notBefore <= q.c.clock.now() {
			pushed, t.extra.pushed = t.extra.pushed, false
		}
		q.mu.Unlock()
		switch {
		case over:
			return false
		case pushed:
			return true
		}
		select {
		case <-timer.C:
			return true
		case <-wake:
		case <-ctx.Done():
			return false
		case <-q.c.shutdown.closing:
			return false
		}
	}
}

// awaitStore waits until the store has replied after an instant. If the wait had
// a place, it has no bound, else it ends with the retry budget.
func (w *wait) awaitStore(ctx context.Context, after instant, placed bool) bool {
	q := w.hold.queue
	if !placed {
		budget := w.retryBudget()
		rest := max(budget-time.Since(w.askedAt), budget-q.laneHealth.silence(), time.Millisecond)
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, rest)
		defer cancel()
	}
	return q.laneHealth.awaitReply(ctx, &q.key, after)
}
