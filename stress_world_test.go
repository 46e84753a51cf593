package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"time"

	"github.com/holdfast-go/holdfast"
)

// work runs one goroutine of a client in TestRandomWorldsKeepGuarantees.
func (w *world) work(i int, c *holdfast.Client, rnd *rand.Rand) {
	for range 12 {
		time.Sleep(w.some(rnd))
		ctx, cancel := w.bound(rnd)
		what := w.attempt(i, c, rnd, ctx)
		cancel()
		w.mu.Lock()
		delete(w.doing, what)
		w.mu.Unlock()
	}
}

// some returns a duration: usually that of a local hand-off, sometimes a lease.
func (w *world) some(rnd *rand.Rand) time.Duration {
	switch rnd.IntN(8) {
	case 0:
		return time.Duration(rnd.Float64() * 2 * float64(w.ttl))
	case 1, 2:
		return 0
	}
	return time.Duration(rnd.Float64() * float64(15*time.Millisecond))
}

func (w *world) bound(rnd *rand.Rand) (context.Context, context.CancelFunc) {
	switch rnd.IntN(6) {
	case 0:
		return context.WithTimeout(bg, w.some(rnd))
	case 1:
		ctx, cancel := context.WithCancel(bg)
		timer := time.AfterFunc(w.some(rnd), cancel)
		return ctx, func() { timer.Stop(); cancel() }
	}
	return bg, func() {}
}

func (w *world) attempt(i int, c *holdfast.Client, rnd *rand.Rand, ctx context.Context) string {
	var opts []holdfast.Option
	if rnd.IntN(6) == 0 {
		opts = append(opts, holdfast.WithMaxHold(time.Millisecond+w.some(rnd)))
	}
	try := rnd.IntN(4) == 0
	name, owner, units := "m0", "", int64(1)
	lock := func(m *holdfast.Mutex) func(context.Context) (*holdfast.Hold, error) {
		if try {
			return m.TryLock
		}
		return m.Lock
	}
	var take func(context.Context) (*holdfast.Hold, error)
	switch kind := rnd.IntN(10); kind {
	case 0, 1, 2:
		name = fmt.Sprintf("m%d", rnd.IntN(2))
		take = lock(c.Mutex(name, opts...))
	case 3:
		name, owner = "owned", []string{"", "x", "y"}[rnd.IntN(3)]
		if owner != "" {
			opts = append(opts, holdfast.WithOwner(owner))
		}
		take = lock(c.Mutex(name, opts...))
	case 4:
		name, units = "rw", limits["rw"]
		take = c.RWMutex(name, opts...).Lock
		if try {
			take = c.RWMutex(name, opts...).TryLock
		}
	case 5, 6:
		name = "rw"
		take = c.RWMutex(name, opts...).RLock
		if try {
			take = c.RWMutex(name, opts...).TryRLock
		}
	case 7, 8:
		name, units = "sem", 1+int64(rnd.IntN(3))
		if rnd.IntN(2) == 0 {
			units = 1
		}
		take = func(ctx context.Context) (*holdfast.Hold, error) {
			if try {
				return c.Semaphore(name, 3, opts...).TryAcquire(ctx, int(units))
			}
			return c.Semaphore(name, 3, opts...).Acquire(ctx, int(units))
		}
	default:
		return w.several(i, c, rnd, ctx, try)
	}
	what := fmt.Sprintf("%s of %s for %d, client %d, %d", map[bool]string{true: "try", false: "lock"}[try], name, units, i, rnd.Int())
	w.note(what)
	start := time.Now()
	h, err := take(ctx)
	if err != nil {
		w.accept(i, what, ctx, try, err)
		if d, ok := ctx.Deadline(); ok && time.Since(d) > 60*time.Millisecond && time.Since(start) > 60*time.Millisecond {
			w.fail("%s returned %v after its context had ended", what, time.Since(d))
		}
		return what
	}
	w.enter(name, owner, units, h)
	w.hold(i, rnd, h, take, 0)
	w.leave(name, h)
	if owner != "" && rnd.IntN(4) == 0 {
		_ = h.Detach()
		w.mu.Lock()
		w.detached = true
		w.mu.Unlock()
	}
	w.release(what, h)
	return what
}

func (w *world) note(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.doing[what]++
}

// hold spends the time in which h is held, and uses its context.
func (w *world) hold(i int, rnd *rand.Rand, h *holdfast.Hold, take func(context.Context) (*holdfast.Hold, error), depth int) {
	if rnd.IntN(3) == 0 {
		h.Context()
	}
	if depth < 3 && rnd.IntN(4) == 0 {
		ctx := h.Context()
		n, err := take(ctx)
		switch {
		case err == nil && n.Token() != h.Token():
			w.fail("nested token %d in %d", n.Token(), h.Token())
		case err == nil:
			w.hold(i, rnd, n, take, depth+1)
			errN, errH := n.Err(), h.Err()
			var own holdfast.LossReason // a nested hold has a MaxHold of its own
			if lost, ok := errors.AsType[*holdfast.LostError](errN); ok {
				own = lost.Reason
			}
			if errN == nil && errH != nil || errN != nil && errH == nil && own != holdfast.LossMaxHold {
				w.fail("nested: %v, in %v", errN, errH)
			}
			_ = n.Unlock()
		case h.Err() == nil:
			w.fail("nested: %v, in a good hold", err)
		}
	}
	if rnd.IntN(20) == 0 {
		runtime.Gosched()
	}
	if rnd.IntN(4) == 0 {
		select {
		case <-h.Context().Done():
			if h.Err() == nil {
				w.fail("the context of a good hold has ended: %v", context.Cause(h.Context()))
			}
		case <-time.After(w.some(rnd)):
		}
	} else {
		time.Sleep(w.some(rnd))
	}
	if err := h.Err(); err != nil && h.Context().Err() == nil {
		w.fail("the context goes on after %v", err)
	} else if err != nil && context.Cause(h.Context()) != err {
		w.fail("cause %v, error %v", context.Cause(h.Context()), err)
	}
}

// release unlocks h and judges the result.
func (w *world) release(what string, h *holdfast.Hold) {
	before := h.Err()
	start := time.Now()
	err := h.Unlock()
	if got := time.Since(start); got > 5*time.Second+60*time.Millisecond || got > max(w.ttl/3, 100*time.Millisecond)+60*time.Millisecond {
		w.fail("Unlock of %s took %v", what, got)
	}
	var lost *holdfast.LostError
	var se *holdfast.StoreError
	switch {
	case before != nil && err != before:
		w.fail("Unlock says %v, Err said %v", err, before)
	case err == nil, errors.Is(err, holdfast.ErrReleased):
	case errors.As(err, &lost):
		if lost.Reason == holdfast.LossGone && !w.exposed || lost.Reason == holdfast.LossExpired && w.level == 0 {
			w.fail("%s: %v", what, err)
		}
	case errors.Is(err, holdfast.ErrClosed):
	case errors.As(err, &se) && w.level > 0:
	default:
		w.fail("Unlock of %s: %v", what, err)
	}
	if h.Err() == nil {
		w.fail("%s is held after Unlock", what)
	}
	w.lost(h)
}

// lost records the loss of h, if h ended by a loss.
func (w *world) lost(h *holdfast.Hold) {
	if lost, ok := errors.AsType[*holdfast.LostError](h.Err()); ok {
		w.mu.Lock()
		w.losses[lost] = true
		w.mu.Unlock()
	}
}

// several takes a Multi.
func (w *world) several(i int, c *holdfast.Client, rnd *rand.Rand, ctx context.Context, try bool) string {
	names := []string{"m2", "m0", "m1"}[:2+rnd.IntN(2)]
	m := c.Multi(names)
	what := fmt.Sprintf("Multi of %v, client %d, %d", names, i, rnd.Int())
	w.note(what)
	lock := m.Lock
	if try {
		lock = m.TryLock
	}
	mh, err := lock(ctx)
	if err != nil {
		w.accept(i, what, ctx, try, err)
		return what
	}
	if rnd.IntN(3) == 0 {
		mh.Context()
	}
	time.Sleep(w.some(rnd))
	if err := mh.Err(); err != nil && mh.Context().Err() == nil {
		w.fail("the context of a Multi goes on after %v", err)
	}
	if err := mh.Unlock(); err != nil && w.level == 0 && !w.closed[i] {
		w.fail("Unlock of %s: %v", what, err)
	}
	return what
}
