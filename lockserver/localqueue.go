package lockserver

import (
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// localQueue is the pinned ids that wait in one queue of the client library, and, if their
// lock admits one at a time, the one that holds. That queue has one place at the store: that
// of its first id, or of the hold that is handed on next. The ids behind have no place of
// their own, and theirs lasts for as long as that one. table.mu guards a localQueue.
type localQueue struct {
	key   queueKey
	holds map[*hold]struct{}
	until time.Time // the end of that place, as the store has last confirmed it
}

// queueKey identifies a localQueue, as the client library identifies its queue.
type queueKey struct {
	name      string
	units, of int64
	ttl       time.Duration
}

func (sp *spec) queueKey() queueKey {
	k := queueKey{name: sp.name, units: 1, of: 1, ttl: sp.ttl}
	switch sp.kind {
	case kindRead:
		k.of = driver.RWLimit
	case kindWrite:
		k.units, k.of = driver.RWLimit, driver.RWLimit
	case kindPermits:
		k.units, k.of = sp.permits, sp.of
	}
	return k
}

// enterQueueLocked lets a pinned hold wait in its queue.
func (t *table) enterQueueLocked(h *hold) {
	if !h.spec.pinned || h.queue != nil {
		return
	}
	key := h.spec.queueKey()
	q := t.queues[key]
	if q == nil {
		q = &localQueue{key: key, holds: make(map[*hold]struct{})}
		t.queues[key] = q
	}
	q.holds[h] = struct{}{}
	h.queue = q
}

// leaveQueueLocked takes a hold out of its queue, if it is in one. A queue that is empty has
// no place.
func (t *table) leaveQueueLocked(h *hold) {
	q := h.queue
	if q == nil {
		return
	}
	h.queue = nil
	if delete(q.holds, h); len(q.holds) == 0 {
		delete(t.queues, q.key)
	}
}

// confirmLocked notes that the store has confirmed the place of a queue until then. Requests
// may wait for that if there was none.
func (q *localQueue) confirmLocked(until time.Time) {
	if q == nil || !until.After(q.until) {
		return
	}
	waited := !q.until.After(time.Now())
	q.until = until
	if waited {
		for h := range q.holds {
			h.changeLocked()
		}
	}
}

// noteHoldLocked notes that an id of a queue holds until then. Its place is that of the ids
// behind if they wait for its release, and not for another place at the store.
func (q *localQueue) noteHoldLocked(h *hold, until time.Time) {
	switch {
	case q == nil:
	case q.key.units == q.key.of:
		q.confirmLocked(until)
	default:
		h.t.leaveQueueLocked(h)
	}
}

// placeEndLocked returns the end of the place of a hold that waits, or of the place of its
// queue if it has none of its own; zero if there is none.
func placeEndLocked(h *hold) time.Time {
	switch {
	case h.state != waiting:
		return time.Time{}
	case h.place != nil && !h.place.Until.IsZero():
		return h.place.Until
	case h.queue != nil:
		return h.queue.until
	}
	return time.Time{}
}
