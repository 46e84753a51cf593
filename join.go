package holdfast

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

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
		if !q.c.ensureSubscribed(ctx) {
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

// onJoinReply handles the reply st to a Join that was sent at the instant sent.
func (q *queue) onJoinReply(h *Hold, t *ticket, st driver.Status, sent instant) {
	t.noteHolder(st.Holder)
	if st.State == driver.Gone && h.wait.try {
		q.clearPending()
		q.forgetPlace(t)
		q.failTries(st.Holder, st.Recheck) // h is one of them
		q.ensureJoiner()
		return
	}
	if st.State == driver.Waiting && t.joinPending && q.c.clock.now() >= claimEnd(t.joinSentAt, q.key.ttl) {
		// An earlier Join may have taken a place that has expired since, and this
		// one another: a push about the first one would grant the second.
		q.leaveDoubtful(h, t)
		return
	}
	if t.extra != nil && t.extra.earlyPush.State > st.State { // the push overtook the answer
		st.State, st.Token = t.extra.earlyPush.State, t.extra.earlyPush.Token
	}
	t.extend(sent, st.Lease)
	switch {
	case st.State == driver.Gone || st.State == 0:
		// The id has a tombstone or was broken; a new id may succeed.
		q.forgetPlace(t)
		q.replaceTicket(h, t)
	case !t.valid(q.c.clock.now()):
		// The reply is older than its lease (F15), so it proves nothing.
		q.leaveDoubtful(h, t)
	case st.State == driver.Held:
		q.placedAt = q.c.clock.now()
		if !q.manual {
			q.c.renewer.add(t, sent, st.Recheck)
		}
		q.onGrant(t, st.Token)
	default:
		q.placedAt = q.c.clock.now()
		t.state = driver.Waiting
		q.notePlaceLocked(t, st)
		q.joiner = nil
		q.c.renewer.add(t, sent, st.Recheck)
		q.failTries(st.Holder, 0)
		if q.waiters.first == nil {
			q.abandonPending()
		}
	}
}

// leaveDoubtful leaves a ticket whose state at the store is in doubt, though the
// store replied, and replaces it.
func (q *queue) leaveDoubtful(h *Hold, t *ticket) {
	q.c.cleaner.addHeld(t)
	t.state = driver.Gone
	q.c.renewer.remove(t)
	q.replaceTicket(h, t)
}

// replaceTicket replaces a ticket that failed, though the store replied, by a
// fresh one.
func (q *queue) replaceTicket(h *Hold, t *ticket) {
	fresh := q.newTicket(h)
	fresh.joinsSent = max(t.joinsSent, 1) // pauses keep growing
	q.pending = fresh
	if !h.overBudget() {
		return
	}
	err := &StoreError{Op: "acquire", Name: q.name(),
		Err: driver.Errorf(driver.Unknown, "the store's answers were older than their leases")}
	if !h.wait.try {
		h.wait.noteStoreWait(err, 0)
		return
	}
	q.clearPending()
	q.failWait(h, err)
	q.ensureJoiner()
}

// onJoinError handles a failed Join. While the failure may pass, h repeats the
// Join with the same ticket, so that a request that took effect is found and
// not repeated.
func (q *queue) onJoinError(h *Hold, t *ticket, err error) {
	class := driver.ClassOf(err)
	if class == driver.Unknown {
		t.joinPending = true
	}
	if q.mayRetryJoin(h, t, err) {
		if t.joinPending && q.c.clock.now() >= t.joinSentAt.add(q.key.ttl-q.key.ttl/50) {
			q.dropLapsed(t)
		}
		return
	}
	var le *driver.LimitError
	if errors.As(err, &le) {
		h.wait.limitAtStore = le.Have
	}
	if class == driver.Refused && !t.joinPending {
		q.c.renewer.remove(t)
		t.state = driver.Gone
		q.clearPending()
		if old := t.Replaces; old != nil {
			q.c.cleaner.add(driver.Ref{Ticket: old, State: driver.Held})
		}
	} else {
		q.abandonPending()
	}
	if _, notReady := driver.IsNotReady(err); class != driver.Refused && !notReady {
		// Waiters whose budget is spent too need no Join of their own to fail.
		for w := q.waiters.first; w != nil; {
			next := w.next
			if q.budgetLeft(w) <= 0 {
				q.failWait(w, storeError("acquire", q.name(), err))
			}
			w = next
		}
	}
	q.failWait(h, storeError("acquire", q.name(), err))
	q.ensureJoiner()
}

// dropLapsed gives up a ticket whose lease passed without a reply. The ticket
// may hold by now, and repeating its Join would block other clients without
// this client's knowledge. The next ticket joins when the store has replied
// again.
func (q *queue) dropLapsed(t *ticket) {
	now := q.c.clock.now()
	if t.state == driver.Waiting {
		q.placedAt = now
		q.news++
	}
	if q.pending == t {
		q.abandonPending()
		q.ensureJoiner()
	}
	if q.pending != nil && q.pending.joinsSent == 0 {
		q.pending.ensureExtra().awaitReplyAfter = now
	}
}

// onPush handles a push about t.
func (q *queue) onPush(t *ticket, st driver.Status) {
	q.mu.Lock()
	switch {
	case t.state == driver.Gone || st.State <= t.state:
	case t.state == 0:
		if st.State > t.ensureExtra().earlyPush.State {
			t.extra.earlyPush = st
		}
	case st.State == driver.Held:
		if t.valid(q.c.clock.now()) {
			q.onGrant(t, st.Token)
		} else {
			q.c.renewer.renewNow(t) // t may hold only with a fresh lease
		}
	case t.state == driver.Waiting:
		q.onPlaceLost(t)
	default:
		q.mu.Unlock()
		q.loseHeld(t, LossGone)
		return
	}
	q.mu.Unlock()
}

// onRenewReply handles the reply st about t to a Renew that was sent at the
// instant sent.
func (q *queue) onRenewReply(t *ticket, st driver.Status, sent instant) {
	q.mu.Lock()
	if t.state == driver.Gone {
		q.mu.Unlock()
		return
	}
	switch st.State {
	case driver.Held, driver.Waiting:
		if t.state == driver.Held && sent > t.grantedAt &&
			(st.State == driver.Waiting || st.Token != 0 && st.Token != t.storeToken) {
			// The store went back to an older state without the grant (F27).
			// The place in that state is given up too.
			q.mu.Unlock()
			q.loseHeld(t, LossGone)
			q.c.cleaner.addHeld(t)
			return
		}
		t.extend(sent, st.Lease)
		if st.Holder != "" {
			t.noteHolder(st.Holder)
		}
		t.endRenewalLocked(nil)
		if st.State == driver.Waiting {
			q.notePlaceLocked(t, st)
		}
		if !t.valid(q.c.clock.now()) { // too late to rely on: renew again
			q.c.renewer.renewSoon(t)
			break
		}
		q.c.renewer.add(t, sent, st.Recheck)
		if st.State == driver.Held && t.state == driver.Waiting {
			q.onGrant(t, st.Token)
		}
	case driver.Gone:
		if t.state == driver.Held {
			q.mu.Unlock()
			q.loseHeld(t, LossGone)
			return
		}
		q.onPlaceLost(t)
	default:
		if t.state == driver.Waiting && driver.ClassOf(st.Err) == driver.Unknown && !t.valid(q.c.clock.now()) {
			q.dropLapsed(t)
			break
		}
		t.endRenewalLocked(st.Err)
		q.c.renewer.renewSoon(t)
	}
	q.mu.Unlock()
}

// onPlaceLost handles the news that the store dropped a waiting ticket: the
// head of the queue joins with a new one.
func (q *queue) onPlaceLost(t *ticket) {
	q.forgetPlace(t)
	if q.pending == t {
		q.clearPending()
		q.ensureJoiner()
	}
}

// forgetPlace marks t as gone because the store has no place for it. If a Join
// of t may still be in flight, the cleaner keeps it from taking one.
func (q *queue) forgetPlace(t *ticket) {
	if t.joinPending {
		q.c.cleaner.add(t.ref())
	}
	if t.state == driver.Waiting {
		q.placedAt = q.c.clock.now()
		q.news++
	}
	t.state = driver.Gone
	q.c.renewer.remove(t)
}
