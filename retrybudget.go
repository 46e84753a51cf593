package holdfast

import (
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// The retry budget bounds how long a Lock goes on while the store is silent, until the
// queue has had a place; it is counted from the call on, or from the last reply.

// retryBudget returns how long a Lock without a place keeps trying a silent
// store, and a Try any store.
func (w *wait) retryBudget() time.Duration {
	ttl := w.hold.queue.key.ttl
	if w.try {
		least := max(callTimeout(ttl), minSilence)
		return w.hold.queue.laneHealth.requestTimeout(requestJoin, least, silenceBudget(ttl))
	}
	return silenceBudget(ttl)
}

// overBudget reports whether the retry budget is spent.
func (w *wait) overBudget() bool { return time.Since(w.askedAt) >= w.retryBudget() }

// troubleDelay returns how long a wait may go without a reply before the
// Observer learns of it. The first probe is sent after half of that time.
func (w *wait) troubleDelay() time.Duration {
	if w.try {
		return callTimeout(w.hold.queue.key.ttl)
	}
	return releaseTimeout(w.hold.queue.key.ttl)
}

// mayRetryJoin reports whether the wait repeats a Join that failed. After a place
// was given, only a refusal ends a Lock. A Lock without a place, and a Try, end
// also when their retry budget is spent and the store has been silent for as
// long. A Try does not wait for a store that replies that it is not ready.
func (w *wait) mayRetryJoin(t *ticket, err error) bool {
	if driver.ClassOf(err) == driver.Refused {
		return false
	}
	q := w.hold.queue
	if after, notReady := driver.IsNotReady(err); notReady {
		if w.try {
			return false
		}
		t.ensureExtra().notBefore = q.c.clock.now().add(after)
		w.noteStoreWait(storeError("acquire", q.name(), err), after)
		return true
	}
	if w.budgetLeft() <= 0 {
		return false
	}
	if time.Since(w.askedAt) >= w.troubleDelay() {
		w.noteStoreWait(storeError("acquire", q.name(), err), 0)
	}
	return true
}

// budgetLeft returns how much longer the wait goes on while the store is silent.
// A Lock with a place has no bound, and a Try ends with its retry budget.
func (w *wait) budgetLeft() time.Duration {
	if w.hadPlace() {
		return time.Duration(never)
	}
	budget := w.retryBudget()
	left := budget - time.Since(w.askedAt)
	if !w.try {
		left = max(left, budget-w.hold.queue.laneHealth.silenceWithin(budget))
	}
	return left
}

// hadPlace reports whether the store has given the queue a place since the wait
// began, whatever became of that place. A Try waits for no place.
func (w *wait) hadPlace() bool {
	if w.try {
		return false
	}
	q := w.hold.queue
	return q.pending != nil && q.pending.state == driver.Waiting ||
		q.key.exclusive() && q.heldCount > 0 ||
		q.placedAt >= w.begunAt
}

// endOverBudget ends, in a silence, the waits whose retry budget is spent, and
// returns the time until the next one is due. For the joiner it only stops the
// Join in flight: the joiner decides for itself.
func (q *queue) endOverBudget() (next instant) {
	q.mu.Lock()
	defer q.mu.Unlock()
	next = never
	for h := q.waiters.first; h != nil; {
		after, left := h.next, h.wait.budgetLeft()
		switch {
		case left > 0:
			next = min(next, instant(left))
		case h != q.waiters.joiner:
			q.waiters.endWait(h, storeError("acquire", q.name(), q.laneHealth.silenceError(driver.Unavailable)))
		case q.joinCall != nil:
			q.joinCall.storeSilent = true
			q.joinCall.stop()
		}
		h = after
	}
	return next
}

// endOverBudget ends the Locks of a silent lane that have no place and whose
// retry budget is spent. It returns the time until the next one is due.
func (lh *laneHealth) endOverBudget() (next instant) {
	next = never
	for _, q := range lh.c.queues.all() {
		if q.laneHealth == lh {
			next = min(next, q.endOverBudget())
		}
	}
	return next
}
