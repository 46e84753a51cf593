package bench

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// holdTime bounds the time to take all locks of an idle scenario.
const holdTime = 30 * time.Second

// hold takes all locks of an idle scenario, and says what each costs while it
// is held and its context is in use.
func (w *worker) hold(parent context.Context) (*response, error) {
	// The locks may live as long as the context that they were taken with.
	ctx, cancel := context.WithCancelCause(parent)
	late := time.AfterFunc(holdTime, func() {
		cancel(fmt.Errorf("bench: %d locks were not taken in %v", w.Scenario.Locks, holdTime))
	})
	context.AfterFunc(parent, func() { cancel(nil) })
	defer late.Stop()
	before := heap()
	w.held = make([]Held, w.Scenario.Locks)
	const at = 64
	var group sync.WaitGroup
	var next atomic.Int64
	errs := make([]error, at)
	for g := range at {
		group.Go(func() {
			for errs[g] == nil {
				i := int(next.Add(1)) - 1
				if i >= len(w.held) {
					return
				}
				w.held[i], errs[g] = w.clients[0].Lock(ctx, w.own("held-", i))
				if c, ok := w.held[i].(interface{ Context() context.Context }); ok && errs[g] == nil {
					c.Context()
				}
			}
		})
	}
	group.Wait()
	if err := errors.Join(errs...); err != nil {
		w.held = slices.DeleteFunc(w.held, func(h Held) bool { return h == nil })
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, err
	}
	return &response{
		PerLock:    (heap() - before) / float64(len(w.held)),
		Goroutines: float64(runtime.NumGoroutine() - w.before),
	}, nil
}

// own returns the name of a lock that only one goroutine wants.
func (w *worker) own(what string, i int) string { return fmt.Sprint(w.Spec.Prefix, what, i) }

func heap() float64 {
	runtime.GC()
	runtime.GC() // frees memory that finalizers and pools release
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

// idle uses a lock of its own while the others are renewed.
func (w *worker) idle(ctx context.Context, start, end int64) (*response, error) {
	sleepUntil(ctx, start)
	at := w.meter()
	a := new(response)
	name := w.own("other-", 0)
	for {
		r := record{asked: now()}
		if r.asked >= end {
			break
		}
		h, err := w.clients[0].Lock(ctx, name)
		if err != nil {
			return nil, fmt.Errorf("bench: Lock: %w", err)
		}
		r.granted = now()
		r.released = r.granted
		err = h.Unlock()
		r.done = now()
		if err != nil {
			return nil, fmt.Errorf("bench: Unlock: %w", err)
		}
		a.records = append(a.records, r)
		time.Sleep(time.Millisecond)
	}
	w.since(at, a)
	a.Goroutines = float64(runtime.NumGoroutine() - w.before)
	for i, h := range w.held {
		if e, ok := h.(interface{ Err() error }); ok && e.Err() != nil {
			return nil, fmt.Errorf("bench: held lock %d: %w", i, e.Err())
		}
	}
	return a, nil
}

// take takes the shared lock and keeps it.
func (w *worker) take(ctx context.Context) (*response, error) {
	r := record{asked: now()}
	h, err := w.clients[0].Lock(ctx, w.Spec.Prefix+sharedName)
	if err != nil {
		return nil, fmt.Errorf("bench: Lock: %w", err)
	}
	r.granted = now()
	w.held = append(w.held, h)
	return &response{records: []record{r}}, nil
}
