package holdfast

import (
	"context"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// queueKey identifies a local queue. Goroutines with equal keys can take over
// tickets from each other; different keys of one name meet only at the store.
type queueKey struct {
	name  string // with the client's prefix
	limit int64
	units int64
	owner string
	ttl   time.Duration
}

// name returns the name that the user gave.
func (q *queue) name() string { return q.c.userName(q.key.name) }

// exclusive queues have at most one held ticket, which is handed on.
func (k *queueKey) exclusive() bool { return k.units == k.limit && k.owner == "" }

// readers share one ticket while it is fresh.
func (k *queueKey) readers() bool {
	return k.limit == driver.RWLimit && k.units == 1 && k.owner == ""
}

// queue holds the goroutines of one client that use one key. However many wait,
// it has at most one pending ticket (joining or waiting), which belongs to the
// queue: when the goroutine that asked for it gives up, the next one inherits
// its place. One goroutine at a time is the joiner: only the joiner sends Join
// and replaces pending. The role passes on with the head of the queue.
//
// Lock order: queue.mu, a laneHealth.mu, Client.mu, Client.healthMu; under
// queue.mu also the root's Hold.mu and the mu of renewer, cleaner,
// subscription, troubles and callCtx. Close takes laneHealth.mu under healthMu,
// after the last queue was made. No request is sent and no Observer called
// under a mutex.
type queue struct {
	*laneHealth // of the name's lane; its c is also the queue's client

	key      queueKey
	sameHash *queue // guarded by Client.mu: the next queue with the same hash in Client.queues

	mu          sync.Mutex
	waiters     holdList // goroutines that wait, first come first served
	pending     *ticket  // the ticket that joins or waits; nil: none
	joiner      *Hold    // nil when pending needs no Join
	openTicket  *ticket  // a held ticket that admits more readers
	lastGranted *ticket  // of the held tickets, the one granted last
	joinCall    *callCtx // the call of the Join in flight
	heldCount   int32    // number of held tickets
	tryCount    int32    // number of Try calls among waiters
	refs        int32    // guarded by Client.mu: callers and holds that use the queue
	manual      bool     // WithManualRenewal: apart from the queue of the same key without it
	joining     bool     // the joiner is in join, and appoints its successor itself
	news        uint16   // counts the answers about the place of pending, for WithWaiting; wraps
	placedAt    instant  // when the store last gave a place, or a place last ended
}

// uncontended allocates queue, hold and ticket together: the usual Lock needs
// all three. They take 568 bytes: with the
// runtime's header of 8 bytes, a size class.
type uncontended struct {
	queue  queue
	hold   Hold
	ticket ticket
}

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

// holder returns the metadata of a ticket that keeps others waiting, as far as
// this client knows one.
func (q *queue) holder() string {
	if t := q.pending; t != nil && t.extra != nil && t.extra.holder != "" {
		return t.extra.holder
	}
	if q.lastGranted != nil {
		return q.lastGranted.Meta
	}
	return ""
}

// admitReader lets a reader in through the open ticket, if no goroutine waits.
func (q *queue) admitReader(h *Hold) bool {
	t := q.openTicket
	if t == nil || q.waiters.first != nil || q.c.closing() {
		return false
	}
	now := q.c.clock.now()
	if t.handOffs >= maxHandOffs || now.sub(t.grantedAt) > maxHandOffTime || !t.valid(now) {
		q.openTicket = nil
		return false
	}
	t.handOffs++
	h.ticket, h.wait.local = t, true
	t.holds.pushBack(h)
	return h.takeLocked()
}

// tryBlocked returns the error of a Try if another goroutine of this client is
// ahead.
func (q *queue) tryBlocked() error {
	waiting := q.waiters.first != nil && !q.waiters.first.wait.try
	if !waiting && !(q.key.exclusive() && q.heldCount > 0) {
		return nil
	}
	return &HeldError{Name: q.name(), Holder: parseHolder(q.holder())}
}

// ensureJoiner creates a pending ticket and makes the head of the queue the
// joiner, if a ticket is needed and none is pending. An exclusive queue with a
// held ticket waits for the local hand-off instead.
func (q *queue) ensureJoiner() {
	h := q.waiters.first
	if h == nil || q.pending != nil || q.key.exclusive() && q.heldCount > 0 {
		return
	}
	q.pending = q.newTicket(h)
	q.appointJoiner(h)
}

func (q *queue) appointJoiner(h *Hold) {
	q.joiner = h
	h.wakeUp()
}

// clearPending forgets the pending ticket, and the joiner with it.
func (q *queue) clearPending() { q.pending, q.joiner = nil, nil }

func (q *queue) newTicket(h *Hold) *ticket {
	t := h.wait.spareTicket
	if h.wait.spareTicket = nil; t == nil {
		t = new(ticket)
	}
	t.queue = q
	id, meta := q.c.newID(h.wait.spec.meta, time.Now())
	t.Ticket = driver.Ticket{
		ID: id, Owner: q.key.owner, Name: q.key.name,
		Units: q.key.units, Limit: q.key.limit, TTL: q.key.ttl,
		Meta: meta,
	}
	return t
}

// onGrant handles the store's news that t holds. t's claim is valid.
func (q *queue) onGrant(t *ticket, token uint64) {
	if q.pending == t {
		q.clearPending()
	}
	t.state, t.storeToken, t.grantedAt = driver.Held, token, q.c.clock.now()
	q.heldCount++
	q.lastGranted = t
	if q.manual {
		q.c.renewer.leaveToUser(t)
	}
	q.c.renewer.watchClaim(t)
	h := q.waiters.first
	if h == nil {
		q.discardHeld(t)
		return
	}
	if token > driver.MaxToken {
		q.discardHeld(t)
		q.failWait(h, &StoreError{Op: "acquire", Name: q.name(),
			Err: driver.Errorf(driver.Refused, "the store's tokens are at their end: %d of its own is more than %d", token, uint64(driver.MaxToken))})
		q.ensureJoiner()
		return
	}
	q.grantTo(t, h)
	if q.key.readers() {
		q.openTicket = t
		for h := q.waiters.first; h != nil && t.handOffs < maxHandOffs; h = q.waiters.first {
			t.handOffs++
			h.wait.local = true
			q.grantTo(t, h)
		}
	}
	if q.key.exclusive() {
		q.failTries(t.Meta, 0)
	}
	q.ensureJoiner()
}

// removeWaiter takes h out of the queue.
func (q *queue) removeWaiter(h *Hold) {
	q.waiters.remove(h)
	if h.wait.try {
		q.tryCount--
	}
}

// grantTo grants t to h, a waiter.
func (q *queue) grantTo(t *ticket, h *Hold) {
	q.removeWaiter(h)
	h.ticket = t
	t.holds.pushBack(h)
	h.wakeUp()
	if q.joiner == h || q.waiters.first == nil {
		q.passJoiner() // a semaphore's local hand-off while a ticket was pending
	}
}

// failWait ends the wait of h with err, unless h has been granted.
func (q *queue) failWait(h *Hold, err error) {
	if !h.queuedLocked() {
		return
	}
	q.removeWaiter(h)
	h.wait.err = err
	h.wakeUp()
}

// failTries ends all Try calls in the queue, because another ticket holds. left
// is the time after which the store drops the holder, 0 if not known.
func (q *queue) failTries(holder string, left time.Duration) {
	for h := q.waiters.first; h != nil && q.tryCount > 0; {
		next := h.next
		if h.wait.try {
			q.failWait(h, &HeldError{Name: q.name(), Holder: parseHolder(holder), Left: left})
		}
		h = next
	}
}

// giveUpWait ends a wait because its context ended, or, with a nil ctx, because
// of Shutdown or Close. The grant or pending ticket of h passes to another waiter, or
// leaves.
func (q *queue) giveUpWait(h *Hold, ctx context.Context) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	err := error(&nameError{name: q.name(), err: ErrClosed})
	if ctx != nil && !q.c.closing() {
		err = waitError(ctx, q.name(), h.wait.askedAt, parseHolder(q.holder()))
	}
	if h.ticket != nil { // granted just as the wait ended
		if t := q.dropHold(h); t != nil {
			q.c.cleaner.addHeld(t)
		}
		return err
	}
	if h.wait.err != nil {
		return h.wait.err
	}
	q.removeWaiter(h)
	h.wait.err = err
	if q.joiner == h || q.waiters.first == nil {
		q.passJoiner()
	}
	return err
}

// passJoiner appoints a new joiner for the pending ticket after the old joiner
// left the queue, and leaves the ticket when no goroutine waits. It does not
// interrupt a Join in flight: the goroutine that sends it passes the role on
// afterwards.
func (q *queue) passJoiner() {
	switch first := q.waiters.first; {
	case q.pending == nil || q.joining || q.joiner != nil && q.joiner.queuedLocked():
	case first != nil:
		q.appointJoiner(first)
	default:
		q.abandonPending()
	}
}

// abandonPending leaves the pending ticket because no goroutine waits for it.
func (q *queue) abandonPending() {
	t := q.pending
	q.clearPending()
	if old := t.Replaces; old != nil && t.state == 0 {
		q.c.cleaner.add(driver.Ref{Ticket: old, State: driver.Held})
	}
	if t.state == 0 && t.joinsSent == 0 {
		return // no Join was sent
	}
	q.c.renewer.remove(t)
	ref := t.ref()
	t.state = driver.Gone
	q.c.cleaner.add(ref)
}

// discardHeld leaves a held ticket that no goroutine wants.
func (q *queue) discardHeld(t *ticket) {
	q.retireHeld(t)
	q.c.cleaner.addHeld(t)
}

// retireHeld takes a held ticket out of the queue. The store still has the
// ticket.
func (q *queue) retireHeld(t *ticket) {
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
	t.state = driver.Gone
	q.c.renewer.remove(t)
	t.endRenewalLocked(nil)
}
