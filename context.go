package holdfast

import (
	"context"
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
	if isHoldOf(c.hold, key) {
		return c.hold
	}
	return c.Context.Value(key)
}

// isHoldOf reports whether h is the hold that a context key stands for.
func isHoldOf(h *Hold, key any) bool {
	switch k := key.(type) {
	case *queue:
		q := h.root.queue
		return k.c == q.c && k.key.name == q.key.name && k.key.limit == q.key.limit
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
