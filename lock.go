package holdfast

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// spec is the name and the options of a handle.
type spec struct {
	c            *Client
	err          error // of a bad option or name; reported by each call
	name         string
	kind         kind
	key          queueKey
	maxHold      time.Duration
	maxWait      time.Duration
	existingSize bool // of a semaphore: WithExistingSize
	given        givenOptions
	meta         metaEncoder
	waiting      func(Waiting) // of WithWaiting
}

// kind is the kind of a handle, which its options must fit.
type kind uint8

const (
	kindMutex kind = iota
	kindRW
	kindSemaphore
)

func (c *Client) spec(name string, k kind, limit int64, opts []Option) *spec {
	if !c.made() {
		return &spec{err: errNoClient}
	}
	st := &c.settings
	s := &spec{c: c, name: name, kind: k}
	if len(opts) > 0 {
		own := c.settings
		if s.err = own.applyLock(opts); s.err != nil {
			return s
		}
		st, s.given = &own, own.given
	}
	full, err := c.storeName(name)
	if err == nil {
		err = st.check(c.traits)
	}
	switch {
	case err != nil:
	case limit > 1 && !c.traits.Shared:
		err = fmt.Errorf("holdfast: %q: %s: %w", name, kindOf(limit), ErrUnsupported)
	case s.given&givenExistingSize != 0 && k != kindSemaphore:
		err = fmt.Errorf("holdfast: %q: WithExistingSize is an option of semaphores", name)
	}
	s.err = err
	s.maxHold, s.maxWait = st.maxHold, st.maxWait
	s.existingSize = st.existingSize && k == kindSemaphore
	s.waiting = st.waiting
	s.key = queueKey{name: full, limit: limit, owner: st.owner, ttl: st.ttl, manual: st.manual}
	if s.meta = c.meta; st.owner != c.settings.owner || st.note != c.settings.note || st.holder != c.settings.holder ||
		st.replacesHolder != c.settings.replacesHolder {
		s.meta = newMetaEncoder(st)
	}
	return s
}

// check refuses a call that cannot be carried out.
func (s *spec) check(ctx context.Context) error {
	switch {
	case s == nil:
		return errNotMade
	case s.err != nil:
		return s.err
	case ctx == nil:
		return fmt.Errorf("holdfast: %q: the context is nil", s.name)
	}
	return nil
}

// bounded returns a context for the wait of a Lock with ctx, which MaxWait
// bounds. cancel frees its timer.
func (s *spec) bounded(ctx context.Context) (wait context.Context, cancel context.CancelFunc) {
	if s.maxWait == 0 {
		return ctx, func() {}
	}
	return context.WithTimeoutCause(ctx, s.maxWait, ErrMaxWait)
}

// lock takes units of the lock, and waits for them unless try is set.
func (s *spec) lock(ctx context.Context, units int64, try bool) (*Hold, error) {
	if err := s.check(ctx); err != nil {
		return nil, err
	}
	if try {
		return s.lockWithin(&attempt{ctx: ctx, wait: ctx, try: true}, units)
	}
	wait, cancel := s.bounded(ctx)
	defer cancel()
	return s.lockWithin(&attempt{ctx: ctx, wait: wait}, units)
}

// attempt is one call that takes a lock.
type attempt struct {
	ctx      context.Context // the caller's
	wait     context.Context // bounds the wait
	values   context.Context // the hold's; ctx without Observers
	calledAt time.Time       // when the user's call began, for a WaitError
	askedAt  time.Time       // when the lock was asked for; budgets count from then
	begunAt  instant         // askedAt, on the client's clock
	try      bool
	observed bool
}

// begin notes that the lock is asked for now. The user's call began now too, unless a
// has an earlier time.
func (a *attempt) begin(c *clock) {
	a.askedAt, a.begunAt = c.read()
	if a.calledAt.IsZero() {
		a.calledAt = a.askedAt
	}
}

// lockWithin is lock with the contexts of a, and with its calledAt where the call began
// before. The hold has the values of a.ctx.
func (s *spec) lockWithin(a *attempt, units int64) (*Hold, error) {
	a.values = a.ctx
	if s.isObserved(a.ctx) {
		return s.lockObserved(a, units)
	}
	a.begin(&s.c.clock)
	h, err := s.lockUnits(a, units)
	if err != nil {
		return nil, err
	}
	s.c.waits.put(h)
	return h, nil
}

// lockUnits takes units of the lock. With an error, the hold only has its wait,
// and may be nil.
func (s *spec) lockUnits(a *attempt, units int64) (*Hold, error) {
	key := s.key
	if units > key.limit { // only with WithExistingSize
		have, err := s.sizeAtStore(a, units)
		if err != nil {
			return nil, err
		}
		key.limit = have
	}
	key.units = int32(units)
	for {
		h, err := s.lockKey(a, key)
		if err == nil {
			return h, nil
		}
		var have int64
		if h != nil {
			have = h.wait.limitAtStore
		}
		if !s.existingSize || !isSize(have) || have == key.limit || units > have {
			return h, err
		}
		key.limit = have
	}
}

// isSize reports whether a queue of that limit may be a semaphore's. A limit of
// 1 is left to mutexes: a size is never rolled out to them.
func isSize(limit int64) bool { return limit > 1 && limit != driver.RWLimit }

// sizeAtStore returns the semaphore's size at the store, for a call that asks
// for more permits than this client's size. A ticket for more permits than the
// queue's limit would wait for ever and block the others.
func (s *spec) sizeAtStore(a *attempt, units int64) (int64, error) {
	call, cancel := context.WithTimeout(a.wait, callTimeout(s.key.ttl))
	defer cancel()
	defer context.AfterFunc(s.c.pushCtx, cancel)() // Close ends it
	dq, err := s.c.drv.Inspect(call, s.key.name)
	switch {
	case s.c.closing():
		return 0, &nameError{name: s.name, err: ErrClosed}
	case a.wait.Err() != nil:
		return 0, waitError(a.wait, s.name, a.calledAt, Holder{})
	case err != nil:
		return 0, storeError("acquire", s.name, err)
	case !isSize(dq.Limit) || units > dq.Limit:
		return 0, s.tooMany(units)
	}
	return dq.Limit, nil
}

func (s *spec) tooMany(n int64) error {
	return fmt.Errorf("holdfast: %q: cannot acquire %d permits; the semaphore has %d", s.name, n, s.key.limit)
}

// lockKey takes the lock by one key. With an error, the hold only has its wait,
// and may be nil.
func (s *spec) lockKey(a *attempt, key queueKey) (*Hold, error) {
	c := s.c
	if a.wait.Err() != nil && !c.closing() {
		return nil, waitError(a.wait, s.name, a.calledAt, Holder{})
	}
	q, h := c.queues.get(key)
	if q == nil {
		return nil, &nameError{name: s.name, err: ErrClosed}
	}
	defer func() {
		if h.wait == nil || !h.wait.uncounted {
			c.calls.Done()
		}
	}()
	h.ctx, h.wait.spec = a.values, s
	h.wait.calledAt, h.wait.askedAt, h.wait.begunAt = a.calledAt, a.askedAt, a.begunAt
	if a.observed {
		h.kind, h.observed = s.kind, lockDoneDue
	}
	if outer, _ := a.ctx.Value(q).(*Hold); outer != nil {
		c.queues.release(q)
		if err := h.nest(a.wait, outer, key, a.try); err != nil {
			return nil, err
		}
		return h, nil
	}
	if err := h.wait.acquire(a.wait, a.try); err != nil {
		c.queues.release(q)
		return h, err
	}
	return h, nil
}

// do runs fn under a hold. It judges at the instant fn returns.
func (s *spec) do(ctx context.Context, units int64, fn func(ctx context.Context) error) error {
	if err := s.checkFunc(fn); err != nil {
		return err
	}
	h, err := s.lock(ctx, units, false)
	if err != nil {
		return err
	}
	return runHeld(h, h.context(h.workParent(ctx)), fn)
}

// checkFunc refuses a nil function, and one whose hold nobody could renew, before anything is locked for it.
func (s *spec) checkFunc(fn func(ctx context.Context) error) error {
	switch {
	case s == nil:
		return nil
	case fn == nil:
		return fmt.Errorf("holdfast: %q: the function is nil", s.name)
	case s.key.manual:
		return errManualFunction(s.name)
	}
	return nil
}

// unlocker is a Hold or a MultiHold, as Do uses it.
type unlocker interface {
	Err() error
	Unlock() error
	beginFunction() error
	askedToStop() bool
}

// runHeld calls fn under a hold. A loss that ended the hold before fn returned,
// or else a loss that the release finds, is joined with fn's error.
func runHeld(h unlocker, ctx context.Context, fn func(ctx context.Context) error) error {
	err, over := runTerm(h, ctx, fn)
	if over != nil {
		return errors.Join(err, over)
	}
	return err
}

// runTerm calls fn, and releases the hold also when fn panics or exits the
// goroutine. It returns fn's error, and why the hold had ended when fn returned,
// or else the loss that the release found. Shutdown is joined with an error of
// fn, which it may have caused. If the client began to close before fn began,
// runTerm does not call fn.
func runTerm(h unlocker, ctx context.Context, fn func(ctx context.Context) error) (err, over error) {
	good := false
	defer func() {
		if released := h.Unlock(); good && errors.Is(released, ErrLost) {
			over = released
		}
	}()
	if over := h.beginFunction(); over != nil {
		return nil, over
	}
	err = fn(ctx)
	if err != nil && h.askedToStop() && !errors.Is(err, ErrShutdown) {
		err = errors.Join(err, ErrShutdown)
	}
	over = h.Err()
	good = over == nil
	return err, over
}

// permits checks a number of permits of a semaphore.
func (s *spec) permits(ctx context.Context, n int) (int64, error) {
	if err := s.check(ctx); err != nil {
		return 0, err
	}
	switch {
	case n < 1:
		return 0, fmt.Errorf("holdfast: %q: cannot acquire %d permits; the minimum is 1", s.name, n)
	case int64(n) > s.key.limit && !s.existingSize || n > maxPermits:
		return 0, s.tooMany(int64(n))
	}
	return int64(n), nil
}

const maxPermits = math.MaxInt32
