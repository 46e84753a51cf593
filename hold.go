package holdfast

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// Hold is a lock that is held. It is renewed until Unlock, and ends before its
// lease can have ended at the store. A Hold is safe for concurrent use.
//
// Programs hold many: what is needed only for a while is apart from it, and
// goes when that is over.
type Hold struct {
	line *line
	root *Hold           // the hold that a nested one is part of; itself otherwise
	up   *Hold           // the hold whose context a nested one was opened with
	ctx  context.Context // Lock's

	// Guarded by line.mu.
	prev, next *Hold   // in the line's queue, then among those who hold by t
	wait       *wait   // until Lock returns it
	t          *ticket // the ticket it holds by

	token uint64
	since instant
	bound *bound // of MaxHold, nil for none

	mu     sync.Mutex
	over   error    // why it does not hold any more
	hctx   *holdCtx // made when asked for
	inside *inside  // made when asked for
	open   int32    // of a root: Unlocks it waits for, its own and of nested holds
	taken  bool     // guarded by line.mu: its goroutine has seen the grant

	once   sync.Once
	result error // of Unlock
}

// wait is what a hold needs until it holds; guarded by line.mu.
type wait struct {
	spec  *spec
	asked time.Time
	wake  chan struct{} // made when it has to wait
	try   bool
	told  bool
	err   error   // why it ended without a hold
	spare *ticket // to be used for its Join
	have  int64   // the line's limit, after a LimitError
}

// bound is the end of a hold that may not last.
type bound struct {
	until instant
	timer *time.Timer
}

// inside is what is nested in a hold.
type inside struct {
	holds []*Hold // of a root: to tell them
	slot  chan struct{}
}

// within returns what is nested in h. The caller has root.mu.
func (h *Hold) within() *inside {
	if h.inside == nil {
		h.inside = new(inside)
	}
	return h.inside
}

// rouse wakes the goroutine that waits in acquire, if it sleeps.
func (h *Hold) rouse() {
	if h.wait.wake == nil {
		return // it has not looked yet, or needs no waking
	}
	select {
	case h.wait.wake <- struct{}{}:
	default:
	}
}

// queued says whether it still waits: a hold to be is in its line's queue until
// it is granted or fails. The caller has line.mu.
func (h *Hold) queued() bool { return h.t == nil && h.wait.err == nil }

// patience is how long a Lock without a place goes on asking a store that
// fails.
func (h *Hold) patience() time.Duration {
	if h.wait.try {
		return callLimit(h.line.key.ttl)
	}
	return releaseLimit(h.line.key.ttl)
}

// impatient says whether its Lock has lasted that long.
func (h *Hold) impatient() bool { return time.Since(h.wait.asked) >= h.patience() }

// take turns the grant into a hold, on the goroutine that waited for it; false
// when it was lost before. The caller has line.mu.
func (h *Hold) take() bool {
	t, c := h.t, h.line.c
	if t.state != driver.Held {
		return false
	}
	h.taken = true
	h.root = h
	h.open = 1
	h.token = t.tokenNow()
	if h.line.key.readers() {
		h.token = t.token << 8
	}
	h.since = c.clock.now()
	if d := h.wait.spec.maxHold; d > 0 {
		h.mu.Lock() // the timer may fire at once
		defer h.mu.Unlock()
		h.bound = &bound{until: h.since.add(d)}
		h.bound.timer = time.AfterFunc(d, h.expire)
	}
	return true
}

// Name returns the name of the lock, as given by the user.
func (h *Hold) Name() string { return h.line.name() }

// Token returns the fencing token of the hold. For exclusive holds it is
// greater than that of every earlier hold of this name; a nested hold, and
// another hold of the same named owner, have the same. The tokens of readers
// order them against writers, and those of semaphores tell grants apart: a
// guard must not be raised by them. It is below 2^53 as long as the store's own
// counter allows, and 0 where the store has none. A lock whose token would not
// fit into 64 bits is refused.
func (h *Hold) Token() uint64 { return h.token }

// Err returns nil while the lock is held for certain. Afterwards it returns why
// not: a *LostError, ErrReleased, or ErrClosed. It compares clocks in the call,
// so that it is right at the first instruction after a pause of the process. It
// sends nothing and does not block.
func (h *Hold) Err() error {
	if err := h.ended(); err != nil {
		return err
	}
	r := h.root
	now := r.line.c.clock.now()
	if now >= r.until() {
		r.expire()
	} else if !r.t.valid(now) {
		r.line.lose(r.t, LossExpired)
	}
	return h.ended()
}

// until is the end of MaxHold, or never.
func (h *Hold) until() instant {
	if h.bound == nil {
		return never
	}
	return h.bound.until
}

func (h *Hold) ended() error {
	h.root.mu.Lock()
	defer h.root.mu.Unlock()
	return h.over
}

// Deadline returns when the hold's claim ends unless it is renewed, by this
// machine's clock. While the store answers it moves on, so that more than half
// of the TTL is left; less than that means that the hold is in doubt. After the
// hold has ended the value means nothing.
func (h *Hold) Deadline() time.Time {
	r := h.root
	return r.line.c.clock.wall(min(instant(r.t.claim.Load()), r.until()))
}

// Context returns a context that ends with the hold: its cause is the
// *LostError, ErrReleased or ErrClosed. It carries the values of Lock's
// context, but not its end. A lock taken with it nests in this hold; see the
// package documentation.
func (h *Hold) Context() context.Context {
	return h.context((*outside)(h))
}

// context makes the hold's context over parent, the first time.
func (h *Hold) context(parent context.Context) *holdCtx {
	r := h.root
	r.mu.Lock()
	defer r.mu.Unlock()
	if h.hctx == nil {
		h.hctx = newHoldCtx(parent, h)
		if h.over != nil {
			h.hctx.cancel(h.over)
		}
	}
	return h.hctx
}

// end ends a root and what is nested in it. Only the first cause counts.
func (h *Hold) end(why error) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.open == 0 {
		return false
	}
	h.open = 0
	h.finish(why)
	if h.inside != nil {
		for _, n := range h.inside.holds {
			n.finish(why)
		}
	}
	h.alone()
	return true
}

// alone drops what a root that has ended does not need. The caller has h.mu.
func (h *Hold) alone() {
	if h.inside != nil {
		h.inside.holds = nil
	}
	if h.bound != nil {
		h.bound.timer.Stop()
	}
}

// finish marks one hold as over. The caller has root.mu.
func (h *Hold) finish(why error) {
	if h.over != nil {
		return
	}
	h.over = why
	if h.hctx != nil {
		h.hctx.cancel(why)
	}
}

// expire ends a hold that has reached its MaxHold.
func (h *Hold) expire() {
	l := h.line
	if !l.c.enter() {
		l.shut(h.t)
		return
	}
	defer l.c.calls.Done()
	err := h.lostError(LossMaxHold)
	if !h.end(err) {
		return
	}
	l.mu.Lock()
	t := l.drop(h)
	l.mu.Unlock()
	if t != nil {
		l.c.cleaner.add(t)
	}
	l.c.releaseLine(l)
	l.c.tellLost([]*LostError{err})
}

func (h *Hold) lostError(why LossReason) *LostError {
	return &LostError{Name: h.Name(), Reason: why, Token: h.token, Since: h.line.c.clock.wall(h.since)}
}

// Unlock releases the hold. It needs no context and works after every context
// has ended; it blocks for at most a third of the TTL or 5 s, whichever is
// less. It is idempotent: later and concurrent calls return what the first did.
//
// It returns nil when the lock was held until now and is released: at the
// store, to the next goroutine of this client, or, for a nested hold, to the
// outer one. It returns a *LostError when the hold was lost before, ErrClosed
// when Close had ended it, and a *StoreError when the store did not confirm:
// then the release is repeated in the background until the lease has ended.
func (h *Hold) Unlock() error {
	h.once.Do(func() { h.result = h.unlock() })
	return h.result
}

func (h *Hold) unlock() error {
	err := h.Err()
	r := h.root
	if err == nil {
		err = h.release()
	}
	if h.up != nil {
		h.up.exit()
	}
	if h == r {
		if o := h.line.c.observer(); o.Released != nil {
			guard(func() { o.Released(h.Name(), h.token, h.line.c.clock.now().sub(h.since), err) })
		}
	}
	return err
}

func (h *Hold) release() error {
	r, l := h.root, h.root.line
	if !l.c.enter() {
		l.shut(r.t) // Close has begun and may not have come to it yet
		return h.ended()
	}
	defer l.c.calls.Done()
	r.mu.Lock()
	if h.over != nil {
		err := h.over
		r.mu.Unlock()
		return err
	}
	h.finish(ErrReleased)
	r.open--
	if r.open > 0 {
		if i := slices.Index(r.within().holds, h); i >= 0 {
			r.inside.holds = slices.Delete(r.inside.holds, i, i+1)
		}
		r.mu.Unlock()
		return nil
	}
	r.alone()
	r.mu.Unlock()

	l.mu.Lock()
	if r.t.state != driver.Held {
		l.mu.Unlock()
		l.c.releaseLine(l)
		return r.lostError(LossGone)
	}
	t := l.drop(r)
	l.mu.Unlock()
	var err error
	if t != nil {
		err = l.leave(t)
	}
	l.c.releaseLine(l)
	return err
}

// Detach ends the hold in this process and keeps it at the store, for the next
// process of the same named owner, which has to take it within the TTL. The
// hold's context ends with ErrReleased. It blocks for one request, which
// renews the lease a last time. It returns an error without detaching when the
// hold has no named owner or is nested, and a *LostError when it was lost.
func (h *Hold) Detach() error {
	if h.line.key.owner == "" || h.root != h {
		return fmt.Errorf("holdfast: detach %q: only the outermost hold of a named owner can be detached", h.Name())
	}
	var err error
	first := false
	h.once.Do(func() {
		first = true
		err = h.detach()
		h.result = h.ended()
	})
	if !first { // it was unlocked or detached before
		return h.ended()
	}
	return err
}

func (h *Hold) detach() error {
	if err := h.Err(); err != nil {
		return err
	}
	l, t := h.line, h.t
	if !l.c.enter() {
		l.shut(t)
		return h.ended()
	}
	defer l.c.calls.Done()
	ctx, cancel := context.WithTimeout(l.c.life, callLimit(l.key.ttl))
	defer cancel()
	ps, err := l.c.renewAll(ctx, []driver.Ref{{Ticket: &t.Ticket, State: driver.Held}})
	if err == nil {
		err = ps[0].Err
	}
	l.mu.Lock()
	if t.state != driver.Held || err == nil && ps[0].State != driver.Held {
		l.mu.Unlock()
		l.lose(t, LossGone)
		return h.Err()
	}
	detached := h.end(ErrReleased) // unless its MaxHold ended it meanwhile
	if detached {
		l.retire(t)
	}
	l.mu.Unlock()
	if !detached {
		return h.Err()
	}
	l.c.releaseLine(l)
	if err != nil {
		return storeError("detach", h.Name(), err)
	}
	return nil
}
