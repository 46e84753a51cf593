package holdfast

import (
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// mayRetryJoin reports whether h repeats a Join that failed. After a place was
// given, only a refusal ends a Lock. A Lock without a place, and a Try, end
// also when their retry budget is spent and the store has been silent for as
// long. A Try does not wait for a store that replies that it is not ready.
func (q *queue) mayRetryJoin(h *Hold, t *ticket, err error) bool {
	if driver.ClassOf(err) == driver.Refused {
		return false
	}
	if after, notReady := driver.IsNotReady(err); notReady {
		if h.wait.try {
			return false
		}
		t.ensureExtra().notBefore = q.c.clock.now().add(after)
		h.wait.noteStoreWait(storeError("acquire", q.name(), err), after)
		return true
	}
	if q.budgetLeft(h) <= 0 {
		return false
	}
	if time.Since(h.wait.askedAt) >= h.troubleDelay() {
		h.wait.noteStoreWait(storeError("acquire", q.name(), err), 0)
	}
	return true
}

// budgetLeft returns how much longer the waiter h keeps trying while the store
// is silent. A Lock with a place has no bound, and a Try ends with its retry
// budget.
func (q *queue) budgetLeft(h *Hold) time.Duration {
	if q.hadPlace(h) {
		return time.Duration(never)
	}
	budget := h.retryBudget()
	left := budget - time.Since(h.wait.askedAt)
	if !h.wait.try {
		left = max(left, budget-q.laneHealth.silenceWithin(budget))
	}
	return left
}

// endOverBudget ends, in a silence, the waits whose retry budget is spent, and
// returns the time until the next one is due. For the joiner it only stops the
// Join in flight: the joiner decides for itself.
func (q *queue) endOverBudget() (next instant) {
	q.mu.Lock()
	defer q.mu.Unlock()
	next = never
	for h := q.waiters.first; h != nil; {
		after, left := h.next, q.budgetLeft(h)
		switch {
		case left > 0:
			next = min(next, instant(left))
		case h != q.joiner:
			q.failWait(h, storeError("acquire", q.name(), q.laneHealth.silenceError(driver.Unavailable)))
		case q.joinCall != nil:
			q.joinCall.storeSilent = true
			q.joinCall.stop()
		}
		h = after
	}
	return next
}

// hadPlace reports whether the store has given the queue a place since h began
// to wait, whatever became of that place. A Try waits for no place.
func (q *queue) hadPlace(h *Hold) bool {
	if h.wait.try {
		return false
	}
	return q.pending != nil && q.pending.state == driver.Waiting ||
		q.key.exclusive() && q.heldCount > 0 ||
		q.placedAt >= h.wait.begunAt
}

// endOverBudget ends the Locks of a silent lane that have no place and whose
// retry budget is spent. It returns the time until the next one is due.
func (lh *laneHealth) endOverBudget() (next instant) {
	var queues []*queue
	for _, q := range lh.c.queues.all() {
		if q.laneHealth == lh {
			queues = append(queues, q)
		}
	}
	next = never
	for _, q := range queues {
		next = min(next, q.endOverBudget())
	}
	return next
}
