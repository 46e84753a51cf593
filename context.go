package holdfast

import (
	"context"
	"fmt"
	"time"
)

// holdCtx is the context of a hold. It wraps a context of the standard library,
// so that context.Cause finds the cause and derived contexts cost no goroutine.
// Around it are the hold, for nesting, and an Err that compares clocks.
type holdCtx struct {
	context.Context
	hold   *Hold
	cancel context.CancelCauseFunc
}

func newHoldCtx(parent context.Context, h *Hold) *holdCtx {
	inner, cancel := context.WithCancelCause(parent)
	return &holdCtx{inner, h, cancel}
}

// holdParent is the parent of a hold's context: it has the values of Lock's
// context, but not its end, as if made by context.WithoutCancel.
type holdParent Hold

// Deadline reports that there is none.
func (*holdParent) Deadline() (time.Time, bool) { return time.Time{}, false }

// Done is never closed.
func (*holdParent) Done() <-chan struct{} { return nil }

// Err returns nil.
func (*holdParent) Err() error { return nil }

// Value returns the value in Lock's context.
func (o *holdParent) Value(key any) any { return o.ctx.Value(key) }

// workCtx is the parent of the context of Do's function. It ends with the
// context given to Do, and has the values that Observers added.
type workCtx struct {
	context.Context
	values context.Context // without an end of its own, which context.Cause would find
}

// workParent returns ctx with the values that Observers added.
func (h *Hold) workParent(ctx context.Context) context.Context {
	if !h.derived {
		return ctx
	}
	return &workCtx{ctx, context.WithoutCancel(h.ctx)}
}

// Value returns the value of the Observers' context, or else that of the
// context given to Do.
func (c *workCtx) Value(key any) any {
	if v := c.values.Value(key); v != nil {
		return v
	}
	return c.Context.Value(key)
}

// tokenKey is the context key of the hold of a name, as given by the user.
type tokenKey string

// Value answers the package's own keys; the parent answers others.
func (c *holdCtx) Value(key any) any {
	if c.hold.matches(key) {
		return c.hold
	}
	return c.Context.Value(key)
}

// matches reports whether h is the hold that a context key stands for.
func (h *Hold) matches(key any) bool {
	switch k := key.(type) {
	case *queue:
		return k.sameLock(h.root.queue)
	case *spec:
		return k.isLockOf(h.root.queue)
	case tokenKey:
		return string(k) == h.Name()
	}
	return false
}

// Err returns the error of the context, after it has compared clocks.
func (c *holdCtx) Err() error {
	if err := c.Context.Err(); err != nil {
		return err
	}
	_ = c.hold.Err() // ends the context if the claim is over
	return c.Context.Err()
}

// sameLock reports whether two queues of a client are one lock to reentrancy.
func (q *queue) sameLock(other *queue) bool {
	return q.c == other.c && q.key.name == other.key.name && q.key.limit == other.key.limit
}

// isLockOf reports whether a call on s nests in a hold of q.
func (s *spec) isLockOf(q *queue) bool {
	return s.c == q.c && s.key.name == q.key.name &&
		(s.key.limit == q.key.limit || s.existingSize && isSize(q.key.limit))
}

// Token returns the fencing token of the innermost hold of name that ctx comes
// from: the context given to the function of Do, Hold.Context, or a context
// derived from these. It is 0 if ctx comes from no hold of that name; a guard
// refuses 0.
func Token(ctx context.Context, name string) uint64 {
	if ctx == nil {
		return 0
	}
	h, _ := ctx.Value(tokenKey(name)).(*Hold)
	return h.Token()
}

// nest takes a hold inside the hold outer, without a request. Holds opened with
// one context exclude each other, unless they only read, so that goroutines
// that share a context are still serialised.
func (h *Hold) nest(ctx context.Context, outer *Hold, key queueKey, try bool) error {
	if err := outer.Err(); err != nil {
		return err
	}
	r := outer.root
	if key.units > r.queue.key.units {
		return &nameError{h.Name(), ErrUpgrade, "inside " + kindOfKey(r.queue.key) + " of the same name"}
	}
	if err := h.wait.spec.fits(&r.queue.key); err != nil {
		return err
	}
	shared := r.queue.key.readers()
	if !shared {
		if err := outer.takeSlot(ctx, h, try); err != nil {
			return err
		}
	}
	h.outer, h.root, h.queue, h.ticket, h.taken = outer, r, r.queue, r.ticket, true
	h.token, h.since = r.token, r.queue.c.clock.now()
	r.mu.Lock()
	defer r.mu.Unlock()
	over := outer.endErr
	if over == nil && r.stopping {
		over = &nameError{name: outer.Name(), err: ErrClosed}
	}
	if over != nil {
		if !shared {
			outer.freeSlot()
		}
		return over
	}
	r.unlocksLeft++
	in := r.nestedLocked()
	in.holds = append(in.holds, h)
	h.startMaxHoldLocked()
	return nil
}

// fits refuses options of a nested lock that its outer hold, of the given key,
// does not have: both share the outer hold's ticket.
func (s *spec) fits(outer *queueKey) error {
	switch {
	case s.given&givenOwner != 0 && s.key.owner != outer.owner:
		return fmt.Errorf("holdfast: %q: owner %q inside a hold of owner %q: a nested lock has the owner of the outer hold",
			s.name, s.key.owner, outer.owner)
	case s.given&givenTTL != 0 && s.key.ttl != outer.ttl:
		return fmt.Errorf("holdfast: %q: TTL %v inside a hold with a TTL of %v: a nested lock shares the lease of the outer hold",
			s.name, s.key.ttl, outer.ttl)
	}
	return nil
}

// takeSlot takes the only slot inside a hold.
func (h *Hold) takeSlot(ctx context.Context, in *Hold, try bool) error {
	h.root.mu.Lock()
	if h.nestedLocked().slot == nil {
		h.nested.slot = make(chan struct{}, 1)
	}
	slot := h.nested.slot
	h.root.mu.Unlock()
	select {
	case slot <- struct{}{}:
		return nil
	default:
	}
	if try {
		return &HeldError{Name: in.Name(), Holder: parseHolder(h.root.ticket.Meta)}
	}
	over := h.Context()
	select {
	case slot <- struct{}{}:
		return nil
	case <-ctx.Done():
	case <-over.Done():
	}
	switch {
	case h.root.queue.c.closing():
		return &nameError{name: in.Name(), err: ErrClosed}
	case over.Err() != nil:
		return context.Cause(over)
	}
	return waitError(ctx, in.Name(), in.wait.askedAt, Holder{})
}

// freeSlot frees the slot that takeSlot took.
func (h *Hold) freeSlot() { <-h.nested.slot }
