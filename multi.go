package holdfast

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// Multi holds several mutexes at once, all or none. It takes them in the order
// of their names, whatever order the caller gave, so that two Multis never wait
// for each other in a circle. The loss of one ends the wait for the others.
type Multi struct {
	ms  []*Mutex
	err error
}

// Multi returns a lock of all these names. A name given twice counts once. Each
// call on it reports a missing name, or a bad name or option.
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
		if m.err == nil && mu.s.key.manual {
			m.err = errManualFunction(n)
		}
		m.ms = append(m.ms, mu)
	}
	return m
}

// Lock waits until all are held. It is like Mutex.Lock. After an error none of
// them is held: Lock releases those that it had before it returns, or in the
// background if ctx or MaxWait has ended the wait.
func (m *Multi) Lock(ctx context.Context) (*MultiHold, error) { return m.lock(ctx, false) }

// TryLock takes all if all are free, else none. It is like Mutex.TryLock; the
// *HeldError names the first that was not free.
func (m *Multi) TryLock(ctx context.Context) (*MultiHold, error) {
	return m.lock(ctx, true)
}

func (m *Multi) lock(ctx context.Context, try bool) (*MultiHold, error) {
	if err := m.check(ctx); err != nil {
		return nil, err
	}
	begun, wait := time.Now(), ctx
	if !try {
		var cancel context.CancelFunc
		wait, cancel = m.ms[0].s.bounded(ctx)
		defer cancel()
	}
	mh, next := &MultiHold{ctx: ctx}, wait
	for i, mu := range m.ms {
		h, err := mu.s.lockWithin(&attempt{ctx: mh.ctx, wait: next, calledAt: begun, try: try}, 1)
		if err == nil {
			mh.holds = append(mh.holds, h)
			mh.ctx = h.workParent(mh.ctx)
		}
		if lost := mh.lost(); lost != nil { // of an earlier one, which has ended the wait
			err = lost
		}
		if err != nil {
			mh.releasePartial(wait)
			return nil, err
		}
		if !try && i < len(m.ms)-1 { // without h, the wait for the others is of no use
			over, cancel := context.WithCancelCause(next)
			stop := context.AfterFunc(h.Context(), func() { cancel(h.Err()) })
			defer func() { stop(); cancel(nil) }()
			next = over
		}
	}
	return mh, nil
}

// lost returns why one of the names that m has taken so far is not held, or nil.
func (m *MultiHold) lost() error {
	for _, h := range m.holds {
		if err := h.Err(); err != nil {
			return err
		}
	}
	return nil
}

// check refuses a call that cannot be carried out.
func (m *Multi) check(ctx context.Context) error {
	switch {
	case m == nil || m.err == nil && len(m.ms) == 0:
		return errNotMade
	case m.err != nil:
		return m.err
	}
	return m.ms[0].s.check(ctx)
}

// Do runs fn while holding all. It is like Mutex.Do.
func (m *Multi) Do(ctx context.Context, fn func(ctx context.Context) error) error {
	if err := m.check(ctx); err != nil {
		return err
	}
	if err := m.ms[0].s.checkFunc(fn); err != nil {
		return err
	}
	mh, err := m.Lock(ctx)
	if err != nil {
		return err
	}
	return runHeld(mh, mh.context(mh.ctx), fn)
}

// MultiHold is a hold of all names of a Multi. The loss of one name ends its
// context and counts as the loss of all; the other names are held until Unlock.
type MultiHold struct {
	ctx   context.Context
	holds []*Hold

	once      sync.Once
	hctx      *multiCtx
	cancel    context.CancelCauseFunc
	unlock    sync.Once
	unlockErr error
}

// Token returns the fencing token of one of the names, and 0 for another name.
func (m *MultiHold) Token(name string) uint64 {
	if m == nil {
		return 0
	}
	for _, h := range m.holds {
		if h.Name() == name {
			return h.Token()
		}
	}
	return 0
}

// Err returns nil while all are held for certain; otherwise it returns the
// reason why one of them is not. It is like Hold.Err.
func (m *MultiHold) Err() error {
	if !m.made() {
		return ErrReleased
	}
	return m.lost()
}

// beginFunction notes that a function of Do runs under all the holds.
func (m *MultiHold) beginFunction() error {
	for _, h := range m.holds {
		if err := h.beginFunction(); err != nil {
			return err
		}
	}
	return nil
}

// askedToStop reports whether Shutdown or Close has asked the work to stop.
func (m *MultiHold) askedToStop() bool {
	return slices.ContainsFunc(m.holds, (*Hold).askedToStop)
}

// Context returns a context that ends when the first of the names is lost or
// all are released. It is like Hold.Context; a lock of one of the names taken
// with this context nests.
func (m *MultiHold) Context() context.Context {
	if !m.made() {
		return releasedContext()
	}
	return m.context(context.WithoutCancel(m.ctx))
}

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

// Unlock releases all at the same time, and joins their errors. It is like
// Hold.Unlock.
func (m *MultiHold) Unlock() error {
	if !m.made() {
		return ErrReleased
	}
	reportAll(m.release())
	return m.unlockErr
}

// release unlocks all, and returns the holds that it ended.
func (m *MultiHold) release() (ended []endedHold) {
	m.unlock.Do(func() {
		errs := make([]error, len(m.holds))
		var all sync.WaitGroup
		var mu sync.Mutex
		for i, h := range m.holds {
			all.Go(func() {
				at, last, done := h.unlockOnce()
				if errs[i] = h.unlockErr; last {
					mu.Lock()
					defer mu.Unlock()
					ended = append(ended, endedHold{h.root, at, done})
				}
			})
		}
		all.Wait()
		m.unlockErr = errors.Join(errs...)
	})
	return ended
}

// releasePartial releases the holds of a Lock that failed. It waits for the
// store until ctx ends; the release then continues, and Close waits for it.
func (m *MultiHold) releasePartial(ctx context.Context) {
	if len(m.holds) == 0 {
		return
	}
	c := m.holds[0].queue.c
	if !c.beginCall() {
		m.Unlock() // does not block: Close releases them
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		ended := m.release()
		c.calls.Done() // before the Observer, which may call Close
		reportAll(ended)
	}()
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// multiCtx is the context of a MultiHold.
type multiCtx struct {
	context.Context
	hold *MultiHold
}

// Value returns the first of the holds that the key stands for, or else the
// parent's value.
func (c *multiCtx) Value(key any) any {
	for _, h := range c.hold.holds {
		if isHoldOf(h, key) {
			return h
		}
	}
	return c.Context.Value(key)
}

// Err returns the error of the context, after it has compared clocks.
func (c *multiCtx) Err() error {
	if err := c.Context.Err(); err != nil {
		return err
	}
	if err := c.hold.Err(); err != nil {
		c.hold.cancel(err) // AfterFunc does it too, on a goroutine that may be late
	}
	return c.Context.Err()
}
