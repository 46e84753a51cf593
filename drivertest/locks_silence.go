package drivertest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast"
)

// lockInBackground calls Lock and Unlock, and returns a channel for the result.
func (w *lockWorld) lockInBackground(m *holdfast.Mutex) <-chan error {
	done := make(chan error, 1)
	ctx := w.limit()
	go func() {
		h, err := m.Lock(ctx)
		if err == nil {
			err = h.Unlock()
		}
		done <- err
	}()
	return done
}

// clientWithLongTTL opens a client whose holds outlast the disturbances of
// others and a slow machine.
func (w *lockWorld) clientWithLongTTL() *holdfast.Client {
	w.Helper()
	return w.client(w.longTTL())
}

// longTTL is the option of such a client.
func (w *lockWorld) longTTL() holdfast.ClientOption {
	return holdfast.WithTTL(min(10*w.h.TTL, w.traits.MaxTTL))
}

// checkWaiting fails the case when a wait has ended.
func (w *lockWorld) checkWaiting(done <-chan error) {
	w.Helper()
	select {
	case err := <-done:
		w.Fatalf("the wait ended: %v", err)
	default:
	}
}

// refused has the Joins of a client refused with an effect of a plan of faults, for
// longer than a lease, and returns what then tries and waits.
func (w *lockWorld) refused(effect string) (use func(), told func() bool) {
	w.Helper()
	var reason atomic.Value
	c := w.clientWithFaults(fmt.Sprintf("join for %v: %s", 3*w.h.TTL/2, effect), holdfast.WithObserver(&holdfast.Observer{
		LockWait: func(_ context.Context, e holdfast.LockWaitInfo) {
			if e.Err != nil {
				reason.Store(e.Err)
			}
		},
	}))
	m, ctx := c.Mutex(w.name+"/"+effect), w.limit()
	return func() {
		if effect != "refuse" {
			start := time.Now()
			_, err := m.TryLock(ctx)
			if se, ok := errors.AsType[*holdfast.StoreError](err); !ok || !se.Unavailable() {
				w.Errorf("%s: TryLock: %v", effect, err)
			}
			if took, most := time.Since(start), w.h.TTL/6+w.h.Slack; w.still.exceed(took, most, start) {
				w.Errorf("%s: TryLock took %v", effect, took)
			}
		}
		if err := <-w.lockInBackground(m); err != nil {
			w.Errorf("%s: %v", effect, err)
		}
	}, func() bool { return reason.Load() != nil }
}

var silenceCases = []lockCase{
	{name: "silence longer than a lease", about: "a wait with a place outlasts it, and those behind it in its process do (F105)", run: func(w *lockWorld) {
		d := newLink(w.h.Open(w.T))
		c, other := w.clientThrough(d), w.clientWithLongTTL()
		h := w.lock(other.Mutex(w.name))
		first := w.lockInBackground(c.Mutex(w.name))
		w.until("it knows that it waits", func() bool { return d.joins.Load() > 0 })
		second := w.lockInBackground(c.Mutex(w.name))
		d.mode.Store(cut)
		time.Sleep(w.h.TTL + w.h.TTL/4)
		d.mode.Store(connected)
		w.until("it has a place again", func() bool { return w.tickets(other, w.name) == 2 })
		before := d.renewals.Load()
		w.until("a renewal is answered", func() bool { return d.renewals.Load() > before })
		d.mode.Store(cut)
		time.Sleep(2*w.h.TTL + w.h.TTL/2)
		w.checkWaiting(first)
		w.checkWaiting(second)
		w.unlock(h)
		d.mode.Store(connected)
		for _, done := range []<-chan error{first, second} {
			if err := <-done; err != nil {
				w.Error(err)
			}
		}
	}},
	{name: "a store silent for longer than a lease", about: "waits outlast it, whatever the driver makes of it (F105)", pause: true, run: func(w *lockWorld) {
		d := newLink(w.h.Open(w.T))
		c, other := w.clientThrough(d), w.clientWithLongTTL()
		h := w.lock(other.Mutex(w.name))
		first := w.lockInBackground(c.Mutex(w.name))
		w.until("it knows that it waits", func() bool { return d.joins.Load() > 0 })
		second := w.lockInBackground(c.Mutex(w.name))
		resume := sync.OnceFunc(w.h.Pause(w.T))
		defer resume() // other cases go on, whatever becomes of this one
		time.Sleep(2*w.h.TTL + w.h.TTL/2)
		w.checkWaiting(first)
		w.checkWaiting(second)
		resume()
		_ = h.Unlock()
		for _, done := range []<-chan error{first, second} {
			if err := <-done; err != nil {
				w.Error(err)
			}
		}
	}},
	{name: "deaf client", about: "one whose answers are lost keeps nobody out for longer than a lease, and goes on when it hears (F105)", run: func(w *lockWorld) {
		d := newLink(w.h.Open(w.T))
		c, other := w.clientThrough(d), w.clientWithLongTTL()
		h := w.lock(other.Mutex(w.name))
		done := w.lockInBackground(c.Mutex(w.name))
		w.until("it knows that it waits", func() bool { return d.joins.Load() > 0 })
		d.mode.Store(requestsOnly)
		w.unlock(h)
		limit := w.h.TTL + w.h.TTL/20 + 250*time.Millisecond + w.traits.Granularity + w.h.Slack
		for i := range 4 {
			start := time.Now()
			h := w.lock(other.Mutex(w.name))
			if took := time.Since(start); w.still.exceed(took, limit, start) {
				w.Errorf("turn %d: the other client waited %v, TTL %v", i, took, w.h.TTL)
			}
			time.Sleep(w.h.TTL / 2)
			w.unlock(h)
			time.Sleep(w.h.TTL / 2)
		}
		w.checkWaiting(done)
		d.mode.Store(connected)
		if err := <-done; err != nil {
			w.Error(err)
		}
	}},
	{name: "refused for a while", about: "a Lock waits for a store that is not ready, a Try reports it at once, and the Observer why (F107)", run: func(w *lockWorld) {
		var wg sync.WaitGroup
		var told []func() bool
		for _, effect := range []string{"refuse", "not ready", "not ready " + (w.h.TTL / 2).String()} {
			use, knows := w.refused(effect)
			wg.Go(use)
			told = append(told, knows)
		}
		wg.Wait()
		for _, knows := range told {
			w.until("the Observer knows why", knows)
		}
	}},
	{name: "slow answers", about: "a store that takes longer than a request may, and longer with load, ends no Lock (F106)", run: func(w *lockWorld) {
		n := 0
		var one criticalSection
		var wg sync.WaitGroup
		for _, plan := range []string{"join: hold answer %v", "join: hold answer %v", "join: crowd %v"} {
			c := w.clientWithFaults(fmt.Sprintf(plan, w.h.TTL/4))
			for i := range 4 {
				wg.Go(func() {
					err := c.Mutex(w.name, holdfast.WithNote(fmt.Sprint(i))).Do(w.limit(), one.counter(&n))
					if err != nil {
						w.Error(err)
					}
				})
			}
		}
		wg.Wait()
		if n != 12 {
			w.Errorf("counted to %d of 12", n)
		}
	}},
	{name: "no pushes", about: "without a subscription free locks succeed and waits get their turn (F124)", run: func(w *lockWorld) {
		var told atomic.Int32
		c, other := w.clientWithFaults("watch: refuse", holdfast.WithObserver(&holdfast.Observer{
			BackgroundError: func(context.Context, holdfast.BackgroundErrorInfo) { told.Add(1) },
		})), w.clientWithLongTTL()
		h := w.lock(c.Mutex(w.name))
		w.unlock(h)
		h = w.lock(other.Mutex(w.name))
		done := w.lockInBackground(c.Mutex(w.name))
		w.until("it waits", func() bool { return w.tickets(other, w.name) == 2 })
		time.Sleep(w.h.TTL / 4)
		w.unlock(h)
		start := time.Now()
		if err := <-done; err != nil {
			w.Error(err)
		}
		if took, most := time.Since(start), w.h.TTL/3+w.h.Slack; w.still.exceed(took, most, start) {
			w.Errorf("its turn was seen %v late", took)
		}
		if w.traits.Push && told.Load() == 0 {
			w.Error("the Observer does not know that there are no pushes")
		}
	}},
}
