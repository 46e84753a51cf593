package holdfast

import "context"

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
		return string(k) == h.spec.name
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
		return &nameError{h.spec.name, ErrUpgrade, "inside " + kindOfKey(r.line.key) + " of the same name"}
	}
	if !r.line.key.readers() {
		if err := up.enter(ctx, h, try); err != nil {
			return err
		}
		h.up = up
	}
	h.root, h.line, h.t, h.taken = r, r.line, r.t, true
	h.token, h.since, h.until = r.token, r.line.c.clock.now(), r.until
	r.mu.Lock()
	over := up.over
	if over == nil {
		r.open++
		r.nested = append(r.nested, h)
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
	if h.slot == nil {
		h.slot = make(chan struct{}, 1)
	}
	h.root.mu.Unlock()
	select {
	case h.slot <- struct{}{}:
		return nil
	default:
	}
	if try {
		return &HeldError{Name: in.spec.name, Holder: parseHolder(h.root.t.Meta)}
	}
	over := h.Context()
	select {
	case h.slot <- struct{}{}:
		return nil
	case <-ctx.Done():
		return waitError(ctx, in.spec.name, in.asked, Holder{})
	case <-over.Done():
		return context.Cause(over)
	}
}

// exit frees the place that enter took.
func (h *Hold) exit() { <-h.slot }
