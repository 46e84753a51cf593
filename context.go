package holdfast

import (
	"context"
	"time"
)

// holdCtx is the context of a hold. Inside is a context of the standard
// library, so that context.Cause finds the cause and derived contexts cost no
// goroutine; around it are the hold, for nesting, and an Err that compares
// clocks.
type holdCtx struct {
	context.Context
	hold   *Hold
	cancel context.CancelCauseFunc
}

func newHoldCtx(parent context.Context, h *Hold) *holdCtx {
	inner, cancel := context.WithCancelCause(parent)
	return &holdCtx{inner, h, cancel}
}

// outside is a hold as the parent of its context: it has the values of Lock's
// context, but not its end, as one of context.WithoutCancel.
type outside Hold

// Deadline says that there is none.
func (*outside) Deadline() (time.Time, bool) { return time.Time{}, false }

// Done is never closed.
func (*outside) Done() <-chan struct{} { return nil }

// Err is nil.
func (*outside) Err() error { return nil }

// Value is that of Lock's context.
func (o *outside) Value(key any) any { return o.ctx.Value(key) }

// tokenKey asks a context for the hold of a name, as given by the user.
type tokenKey string

// Value answers the package's own questions; others go to the parent.
func (c *holdCtx) Value(key any) any {
	if c.hold.is(key) {
		return c.hold
	}
	return c.Context.Value(key)
}

// is says whether h is what a context is asked for.
func (h *Hold) is(key any) bool {
	switch k := key.(type) {
	case *line:
		return k.sameLock(h.root.line)
	case tokenKey:
		return string(k) == h.Name()
	}
	return false
}

// Err is that of the context, after a look at the clock.
func (c *holdCtx) Err() error {
	if err := c.Context.Err(); err != nil {
		return err
	}
	_ = c.hold.Err() // ends the context if the claim is over
	return c.Context.Err()
}

// sameLock says whether two lines of a client are one lock to reentrancy.
func (l *line) sameLock(o *line) bool {
	return l.c == o.c && l.key.name == o.key.name && l.key.limit == o.key.limit
}

// Token returns the fencing token of the innermost hold of name that ctx comes
// from: the context given to the function of Do, Hold.Context, or one derived
// from those. It is 0 when ctx comes from no hold of that name; a guard refuses
// it.
func Token(ctx context.Context, name string) uint64 {
	h, _ := ctx.Value(tokenKey(name)).(*Hold)
	if h == nil {
		return 0
	}
	return h.token
}

// nest takes a hold inside the hold up, without asking the store. Holds opened
// with one context exclude each other, unless they only read, so that
// goroutines that share a context are still serialised.
func (h *Hold) nest(ctx context.Context, up *Hold, key lineKey, try bool) error {
	if err := up.Err(); err != nil {
		return err
	}
	r := up.root
	if key.units > r.line.key.units {
		return &nameError{h.Name(), ErrUpgrade, "inside " + kindOfKey(r.line.key) + " of the same name"}
	}
	if !r.line.key.readers() {
		if err := up.enter(ctx, h, try); err != nil {
			return err
		}
		h.up = up
	}
	h.root, h.line, h.t, h.taken = r, r.line, r.t, true
	h.token, h.since = r.token, r.line.c.clock.now()
	r.mu.Lock()
	over := up.over
	if over == nil {
		r.open++
		in := r.within()
		in.holds = append(in.holds, h)
	}
	r.mu.Unlock()
	if over != nil && h.up != nil {
		up.exit()
	}
	return over
}

// enter takes the one place inside a hold.
func (h *Hold) enter(ctx context.Context, in *Hold, try bool) error {
	h.root.mu.Lock()
	if h.within().slot == nil {
		h.inside.slot = make(chan struct{}, 1)
	}
	slot := h.inside.slot
	h.root.mu.Unlock()
	select {
	case slot <- struct{}{}:
		return nil
	default:
	}
	if try {
		return &HeldError{Name: in.Name(), Holder: parseHolder(h.root.t.Meta)}
	}
	over := h.Context()
	select {
	case slot <- struct{}{}:
		return nil
	case <-ctx.Done():
		return waitError(ctx, in.Name(), in.wait.asked, Holder{})
	case <-over.Done():
		return context.Cause(over)
	}
}

// exit frees the place that enter took.
func (h *Hold) exit() { <-h.inside.slot }
