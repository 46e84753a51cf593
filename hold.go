package holdfast

import (
	"context"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// Hold is a lock that is held. The client renews it until Unlock, and it ends
// before its lease can have ended at the store. A Hold is safe for concurrent
// use. A nil Hold, or one that no lock call returned, behaves as a released one.
type Hold struct {
	queue *queue
	root  *Hold           // the hold that a nested one is part of; itself otherwise
	outer *Hold           // the hold whose context a nested one was opened with
	ctx   context.Context // Lock's, with the values that Observers added

	// Guarded by queue.mu.
	prev, next *Hold   // in the queue's waiters, then among the holds of ticket
	wait       *wait   // until Lock returns the hold
	ticket     *ticket // the ticket behind the hold

	token   uint64
	since   instant
	maxHold *maxHoldTimer // of MaxHold, nil for none

	mu          sync.Mutex
	endErr      error        // why the hold ended
	hctx        *holdCtx     // made on demand
	nested      *nestedHolds // made on demand
	unlocksLeft int32        // of a root: holds that keep it, itself and nested ones
	taken       bool         // guarded by queue.mu: the waiting goroutine has seen the grant
	kind        kind         // of an observed hold
	derived     bool         // an Observer added values to ctx
	observed    observedState

	// Guarded by the root's mu.
	function bool // a function of Do runs under the hold
	stopping bool // of a root: asked to stop by Shutdown or Close
	left     bool // the hold no longer keeps its root

	once      sync.Once
	unlockErr error // of Unlock
}

// wait is the state of a hold before its grant; guarded by queue.mu. It is
// apart from Hold, so that the many holds of a program stay small.
type wait struct {
	spec         *spec
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
	newsSeen     uint16    // queue.news when it was last called
}

// nestedHolds is the record of the holds nested in a hold.
type nestedHolds struct {
	holds []*Hold // of a root: ended together with it
	slot  chan struct{}
}

// nestedLocked returns the record of the holds nested in h. The root's mu
// guards it.
func (h *Hold) nestedLocked() *nestedHolds {
	if h.nested == nil {
		h.nested = new(nestedHolds)
	}
	return h.nested
}

// wakeUp wakes the goroutine that sleeps in acquire, if any.
func (h *Hold) wakeUp() {
	if h.wait.wakeUp == nil {
		return // the goroutine is not asleep
	}
	select {
	case h.wait.wakeUp <- struct{}{}:
	default:
	}
}

// queuedLocked reports whether h still waits: h is among its queue's waiters
// until it is granted or fails. queue.mu guards the answer.
func (h *Hold) queuedLocked() bool { return h.ticket == nil && h.wait.err == nil }

// retryBudget returns how long a Lock without a place keeps trying a silent
// store, and a Try any store.
func (h *Hold) retryBudget() time.Duration {
	ttl := h.queue.key.ttl
	if h.wait.try {
		least := max(callTimeout(ttl), minSilence)
		return h.queue.laneHealth.requestTimeout(requestJoin, least, silenceBudget(ttl))
	}
	return silenceBudget(ttl)
}

// troubleDelay returns how long a wait may go without a reply before the
// Observer learns of it. The first probe is sent after half of that time.
func (h *Hold) troubleDelay() time.Duration {
	if h.wait.try {
		return callTimeout(h.queue.key.ttl)
	}
	return releaseTimeout(h.queue.key.ttl)
}

// overBudget reports whether the retry budget is spent.
func (h *Hold) overBudget() bool { return time.Since(h.wait.askedAt) >= h.retryBudget() }

// takeLocked turns the grant into a hold, on the goroutine that waited for it.
// It returns false if the grant was lost before. queue.mu guards the state.
func (h *Hold) takeLocked() bool {
	t, c := h.ticket, h.queue.c
	if t.state != driver.Held {
		return false
	}
	h.taken = true
	h.root = h
	h.unlocksLeft = 1
	h.token = t.currentToken()
	if h.queue.key.readers() {
		h.token = t.storeToken << 8
	}
	h.since = c.clock.now()
	h.mu.Lock() // the timer may fire at once
	h.startMaxHoldLocked()
	h.mu.Unlock()
	return true
}

// Name returns the name of the lock, as given by the user.
func (h *Hold) Name() string {
	if h == nil || h.queue == nil {
		return ""
	}
	return h.queue.name()
}

// Token returns the fencing token of the hold. The token of an exclusive hold
// is greater than that of every earlier hold of this name; a nested hold has
// the token of its outer hold, and another hold of the same named owner has the
// same token too. The tokens of readers order them against writers, and those
// of semaphores tell grants apart: neither may raise a guard. A token is below
// 2^53 as long as the store's own counter allows, and 0 where the store has
// none. A lock whose token would not fit into 64 bits is refused.
func (h *Hold) Token() uint64 {
	if h == nil {
		return 0
	}
	return h.token
}

// Ticket returns the id of the hold's ticket at the store: TicketInfo.ID, and the
// argument of Break. Nested holds, and readers of one client, share a ticket. It
// is empty for a hold that no lock call returned.
func (h *Hold) Ticket() string {
	if !h.made() {
		return ""
	}
	return h.root.ticket.ID
}

// Err returns nil while the lock is held for certain. Afterwards it returns the
// reason: a *LostError, ErrReleased, or ErrClosed; after an Unlock that found
// the lock lost, that *LostError. During Shutdown, Err stays nil until Unlock or
// a loss. Err compares clocks during the call, so it is
// right at the first instruction after a pause of the process. It sends nothing
// and does not block.
func (h *Hold) Err() error {
	if !h.made() {
		return ErrReleased
	}
	if err := h.endError(); err != nil {
		return err
	}
	return h.errAt(h.queue.c.clock.now())
}

// errAt is Err at the instant now.
func (h *Hold) errAt(now instant) error {
	r := h.root
	for n := h; n != nil; n = n.outer {
		if n.maxHold != nil && now >= n.maxHold.until {
			n.onMaxHold()
		}
	}
	if !r.ticket.valid(now) {
		r.queue.loseHeld(r.ticket, LossExpired)
	}
	return h.endError()
}

func (h *Hold) endError() error {
	h.root.mu.Lock()
	defer h.root.mu.Unlock()
	return h.endErr
}

// Deadline returns when the hold's claim ends unless it is renewed, by this
// machine's clock. While the store answers, renewals move the deadline, so that
// more than half of the TTL is left; less means that the hold is in doubt.
// After the hold has ended the value is meaningless.
func (h *Hold) Deadline() time.Time {
	if !h.made() {
		return time.Time{}
	}
	r := h.root
	return r.queue.c.clock.wall(min(instant(r.ticket.claim.Load()), h.maxHoldEnd()))
}

// Context returns a context that ends with the hold, whose cause is then the
// *LostError, ErrReleased or ErrClosed, or that Shutdown ends, with ErrShutdown
// as its cause, while the hold goes on. It carries the values of Lock's
// context, but does not end with that context. A lock taken with it nests in
// this hold; see the package documentation.
func (h *Hold) Context() context.Context {
	if !h.made() {
		return releasedContext()
	}
	return h.context((*holdParent)(h))
}

// context returns the hold's context. The first call makes it, over parent.
func (h *Hold) context(parent context.Context) *holdCtx {
	r := h.root
	r.mu.Lock()
	defer r.mu.Unlock()
	if h.hctx == nil {
		h.hctx = newHoldCtx(parent, h)
		switch {
		case h.endErr != nil:
			h.hctx.cancel(h.endErr)
		case r.stopping:
			h.hctx.cancel(ErrShutdown)
		}
	}
	return h.hctx
}
