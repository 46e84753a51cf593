package holdfast

import (
	"context"
	"sync"
	"time"
)

// Hold is a lock that is held. The client renews it until Unlock, and it ends
// before its lease can have ended at the store. A Hold is safe for concurrent
// use. A nil Hold, or one that no lock call returned, behaves as a released one.
type Hold struct {
	queue *queue
	root  *rootHold       // the hold that a nested one is part of; itself otherwise
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

// queuedLocked reports whether h still waits: h is among its queue's waiters
// until it is granted or fails. queue.mu guards the answer.
func (h *Hold) queuedLocked() bool { return h.ticket == nil && h.wait.err == nil }

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
			n.maxHold.onBound()
		}
	}
	if !r.ticket.valid(now) {
		r.ticket.lose(LossExpired)
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
