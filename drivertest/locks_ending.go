package drivertest

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast"
)

var endCases = []lockCase{
	{name: "loss found by the release", about: "Do, RDo and the like join a loss that only their release finds, and it is told once (F113)", run: func(w *lockWorld) {
		other := w.client()
		var lost atomic.Int32
		// With a long TTL a release has time for its first try: a second one could not
		// tell a loss from its own success.
		c := w.clientWithFaults("push: drop", w.longTTL(), holdfast.WithObserver(countLosses(&lost)))
		type work = func(context.Context) error
		ways := map[string]func(string, work) error{
			"Do":    func(name string, fn work) error { return c.Do(w.limit(), name, fn) },
			"Multi": func(name string, fn work) error { return c.Multi([]string{name}).Do(w.limit(), fn) },
		}
		if w.traits.Shared {
			ways["RDo"] = func(name string, fn work) error { return c.RWMutex(name).RDo(w.limit(), fn) }
			ways["Semaphore"] = func(name string, fn work) error { return c.Semaphore(name, 3).Do(w.limit(), 2, fn) }
		}
		for way, do := range ways {
			name := w.name + "/" + way
			err := do(name, func(context.Context) error {
				l, err := other.Inspect(w.limit(), name)
				if err != nil {
					return err
				}
				return other.Break(w.limit(), name, l.Holders[0].ID)
			})
			if !errors.Is(err, holdfast.ErrLost) {
				w.Errorf("%s: %v, want one that is %v", way, err, holdfast.ErrLost)
			}
		}
		w.until("the losses are told", func() bool { return int(lost.Load()) >= len(ways) || w.Failed() })
		if err := c.Close(); err != nil {
			w.Error(err)
		}
		if n := int(lost.Load()); n != len(ways) {
			w.Errorf("%d losses told, want %d", n, len(ways))
		}
	}},
	{name: "several locks and a silent store", about: "a lock of several names returns when its context ends, and leaves nothing (F112)", run: func(w *lockWorld) {
		d := newLink(w.h.Open(w.T))
		c, other := w.clientThrough(d), w.client()
		a, b := w.name+"/a", w.name+"/b"
		h := w.lock(other.Mutex(b))
		m := c.Multi([]string{b, a})
		if _, err := m.TryLock(w.limit()); !errors.Is(err, holdfast.ErrHeld) {
			w.Errorf("TryLock: %v", err)
		}
		if n := w.tickets(other, a); n != 0 {
			w.Errorf("%d tickets stay after a TryLock that found one held", n)
		}
		ctx, cancel := context.WithCancel(w.limit())
		defer cancel()
		ended := make(chan error, 1)
		go func() { _, err := m.Lock(ctx); ended <- err }()
		w.until("it has the first, and waits for the second", func() bool { return w.tickets(other, b) == 2 })
		d.mode.Store(cut)
		start := time.Now()
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			w.Errorf("Lock: %v", err)
		}
		if took, most := time.Since(start), 100*time.Millisecond+w.h.Slack; w.still.exceed(took, most, start) {
			w.Errorf("it returned %v after its context had ended", took)
		}
		d.mode.Store(connected)
		start = time.Now()
		w.until("nothing stays", func() bool { return w.tickets(other, a)+w.tickets(other, b) == 1 })
		if took, most := time.Since(start), w.h.TTL+w.h.TTL/20+w.traits.Granularity+w.h.Slack; w.still.exceed(took, most, start) {
			w.Errorf("it took %v until nothing stayed", took)
		}
		w.unlock(h)
	}},
	{name: "options and kinds", about: "no option makes a mutex, a writer or a reader one permit of many (F110)", needs: shared, run: func(w *lockWorld) {
		a, b := w.client(), w.client(holdfast.WithExistingSize())
		permit, err := a.Semaphore(w.name, 5).Acquire(w.limit(), 1)
		if err != nil {
			w.Fatal(err)
		}
		for kind, try := range map[string]func(context.Context) (*holdfast.Hold, error){
			"Mutex": b.Mutex(w.name).TryLock, "writer": b.RWMutex(w.name).TryLock, "reader": b.RWMutex(w.name).TryRLock,
		} {
			h, err := try(w.limit())
			if err == nil {
				w.Errorf("a %s holds beside a permit", kind)
				w.unlock(h)
			} else if !errors.Is(err, holdfast.ErrKindMismatch) {
				w.Errorf("%s: %v", kind, err)
			}
		}
		w.unlock(permit)
		for _, idle := range []bool{true, false} {
			if !idle {
				if permit, err = a.Semaphore(w.name, 8).Acquire(w.limit(), 1); err != nil {
					w.Fatal(err)
				}
			}
			if _, err := b.Semaphore(w.name, 8).TryAcquire(w.limit(), 10); err == nil || errors.Is(err, holdfast.ErrHeld) {
				w.Errorf("10 of 8 permits: %v", err)
			}
			if n := w.tickets(a, w.name); n != map[bool]int{true: 0, false: 1}[idle] {
				w.Errorf("%d tickets after that", n)
			}
		}
		w.unlock(permit)
	}},
	{name: "the default TTL", about: "a client without WithTTL locks on every store, with a lease that it allows (F132)", run: func(w *lockWorld) {
		c, err := holdfast.New(w.h.Open(w.T))
		if err != nil {
			w.Fatal(err)
		}
		w.Cleanup(func() { _ = c.Close() })
		if got := c.TTL(); got < w.traits.MinTTL || w.traits.MaxTTL > 0 && got > w.traits.MaxTTL {
			w.Errorf("TTL %v is not within %v and %v", got, w.traits.MinTTL, w.traits.MaxTTL)
		}
		h := w.lock(c.Mutex(w.name))
		if left := time.Until(h.Deadline()); left > c.TTL() || left < c.TTL()/2 {
			w.Errorf("a lease of %v, want %v", left, c.TTL())
		}
		w.unlock(h)
		for _, ttl := range []time.Duration{w.traits.MinTTL - 1, w.traits.MaxTTL + 1} {
			if _, err := c.Mutex(w.name, holdfast.WithTTL(ttl)).TryLock(w.limit()); err == nil {
				w.Errorf("a TTL of %v was taken", ttl)
			}
		}
	}},
}
