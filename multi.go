package holdfast

import (
	"context"
	"errors"
	"slices"
	"sync"
)

// Multi holds several mutexes at once, all or none. They are taken in the order
// of their names, whatever order the caller gave, so that two Multis never wait
// for each other in a circle.
type Multi struct {
	ms  []*Mutex
	err error
}

// Multi returns a lock of all these names. A name given twice counts once. No
// name at all, or a bad name or option, is reported by each call on it.
func (c *Client) Multi(names []string, opts ...Option) *Multi {
	names = slices.Clone(names)
	slices.Sort(names)
	names = slices.Compact(names)
	m := &Multi{}
	if len(names) == 0 {
		m.err = errors.New("holdfast: Multi without a name")
	}
	for _, n := range names {
		mu := c.Mutex(n, opts...)
		if mu.s.err != nil {
			m.err = mu.s.err
		}
		m.ms = append(m.ms, mu)
	}
	return m
}

// Lock waits until all are held. It is like Mutex.Lock; after an error none of
// them is held.
func (m *Multi) Lock(ctx context.Context) (*MultiHold, error) { return m.lock(ctx, (*Mutex).Lock) }

// TryLock takes all if all are free, else none. It is like Mutex.TryLock; the
// *HeldError names the first that was not free.
func (m *Multi) TryLock(ctx context.Context) (*MultiHold, error) {
	return m.lock(ctx, (*Mutex).TryLock)
}

func (m *Multi) lock(ctx context.Context, lock func(*Mutex, context.Context) (*Hold, error)) (*MultiHold, error) {
	if m.err != nil {
		return nil, m.err
	}
	mh := &MultiHold{ctx: ctx}
	for _, mu := range m.ms {
		h, err := lock(mu, ctx)
		if err == nil {
			mh.holds = append(mh.holds, h)
			err = mh.Err() // one of the earlier may be lost meanwhile
		}
		if err != nil {
			mh.Unlock()
			return nil, err
		}
	}
	return mh, nil
}

// Do runs fn while holding all. It is like Mutex.Do.
func (m *Multi) Do(ctx context.Context, fn func(ctx context.Context) error) error {
	mh, err := m.Lock(ctx)
	if err != nil {
		return err
	}
	return run(mh, mh.context(ctx), fn)
}

// MultiHold is what a Multi holds. The loss of one name ends its context and
// counts as the loss of all; the others are kept until Unlock.
type MultiHold struct {
	ctx   context.Context
	holds []*Hold

	once   sync.Once
	hctx   *multiCtx
	cancel context.CancelCauseFunc
	unlock sync.Once
	result error
}

// Token returns the fencing token of one of the names, and 0 for another name.
func (m *MultiHold) Token(name string) uint64 {
	for _, h := range m.holds {
		if h.Name() == name {
			return h.Token()
		}
	}
	return 0
}

// Err returns nil while all are held for certain, else why one of them is not.
// It is like Hold.Err.
func (m *MultiHold) Err() error {
	for _, h := range m.holds {
		if err := h.Err(); err != nil {
			return err
		}
	}
	return nil
}

// Context returns a context that ends when the first of the names is lost or
// all are released. It is like Hold.Context; a lock of one of the names taken
// with it nests.
func (m *MultiHold) Context() context.Context { return m.context(context.WithoutCancel(m.ctx)) }

func (m *MultiHold) context(parent context.Context) context.Context {
	m.once.Do(func() {
		inner, cancel := context.WithCancelCause(parent)
		m.hctx, m.cancel = &multiCtx{inner, m}, cancel
		for _, h := range m.holds {
			hc := h.Context()
			context.AfterFunc(hc, func() { cancel(context.Cause(hc)) })
		}
	})
	return m.hctx
}

// Unlock releases all, at the same time. It is like Hold.Unlock, and joins
// their errors.
func (m *MultiHold) Unlock() error {
	m.unlock.Do(func() {
		errs := make([]error, len(m.holds))
		var all sync.WaitGroup
		for i, h := range m.holds {
			all.Go(func() { errs[i] = h.Unlock() })
		}
		all.Wait()
		m.result = errors.Join(errs...)
	})
	return m.result
}

// multiCtx is the context of a MultiHold: it knows all its holds.
type multiCtx struct {
	context.Context
	m *MultiHold
}

// Value answers for each of the holds before the parent.
func (c *multiCtx) Value(key any) any {
	for _, h := range c.m.holds {
		if h.is(key) {
			return h
		}
	}
	return c.Context.Value(key)
}

// Err is that of the context, after a look at the clock.
func (c *multiCtx) Err() error {
	if err := c.Context.Err(); err != nil {
		return err
	}
	if err := c.m.Err(); err != nil {
		c.m.cancel(err) // AfterFunc does it too, on a goroutine that may be late
	}
	return c.Context.Err()
}
