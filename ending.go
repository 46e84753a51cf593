package holdfast

import "github.com/holdfast-go/holdfast/driver"

// A ticket ends in one place, endTicket, for one of the reasons listed in
// queue.go. A wait ends in waiters.endWait, and a hold in root.end.

// atStore says what becomes at the store of a ticket that ends.
type atStore uint8

const (
	absent atStore = iota // the store has no place for it
	left                  // left in the background
	kept                  // still there: the caller leaves, replaces or detaches it
)

// endTicket ends t and takes it out of the queue. A ticket that is absent is left
// all the same if a Join of it may still be in flight and take a place.
func (q *queue) endTicket(t *ticket, at atStore) {
	ref := t.ref()
	switch t.state {
	case driver.Waiting:
		q.placedAt = q.c.clock.now()
		q.waiters.news++
	case driver.Held:
		q.heldCount--
		if q.key.exclusive() {
			q.placedAt = q.c.clock.now()
		}
		if q.openTicket == t {
			q.openTicket = nil
		}
		if q.lastGranted == t {
			q.lastGranted = nil
		}
	}
	t.state = driver.Gone
	q.c.renewer.remove(t)
	t.endRenewalLocked(nil)
	if at == left || at == absent && ref.JoinPending {
		q.c.cleaner.add(ref)
	}
}

// endPending ends the pending ticket, because its Join failed or no goroutine
// waits for it. A ticket that was never sent is dropped.
func (q *queue) endPending(at atStore) {
	t := q.pending
	q.clearPending()
	if old := t.Replaces; old != nil && t.state == 0 {
		q.c.cleaner.add(driver.Ref{Ticket: old, State: driver.Held})
	}
	if t.state != 0 || t.joinsSent > 0 {
		q.endTicket(t, at)
	}
}

// endDoubtful ends a joining ticket whose state at the store is in doubt, though
// the store replied, and replaces it.
func (q *queue) endDoubtful(h *Hold, t *ticket) {
	q.c.cleaner.addHeld(t)
	q.endTicket(t, kept)
	q.replaceTicket(h, t)
}

// endLapsed ends a ticket whose lease passed without a reply. The ticket
// may hold by now, and repeating its Join would block other clients without
// this client's knowledge. The next ticket joins when the store has replied
// again.
func (q *queue) endLapsed(t *ticket) {
	now := q.c.clock.now()
	if q.pending == t {
		q.endPending(left)
		q.ensureJoiner()
	}
	if q.pending != nil && q.pending.joinsSent == 0 {
		q.pending.ensureExtra().awaitReplyAfter = now
	}
}

// replaceTicket replaces a ticket that failed, though the store replied, by a
// fresh one.
func (q *queue) replaceTicket(h *Hold, t *ticket) {
	fresh := q.newTicket(h)
	fresh.joinsSent = max(t.joinsSent, 1) // pauses keep growing
	q.pending = fresh
	if !h.wait.overBudget() {
		return
	}
	err := &StoreError{Op: "acquire", Name: q.name(),
		Err: driver.Errorf(driver.Unknown, "the store's answers were older than their leases")}
	if !h.wait.try {
		h.wait.noteStoreWait(err, 0)
		return
	}
	q.clearPending()
	q.waiters.endWait(h, err)
	q.ensureJoiner()
}
