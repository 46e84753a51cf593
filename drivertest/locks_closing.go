package drivertest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast"
)

// A functionRun is one function of Do, and a rival of another client that wants
// the same lock. It notes whether the rival held while the function ran.
type functionRun struct {
	name    string
	begun   time.Time     // before the call of Do
	asked   chan error    // the cause of the end of the function's context
	result  chan error    // of Do
	rival   chan error    // of the rival's Lock and Unlock
	started atomic.Bool   // the function runs or has run
	running atomic.Bool   // the function runs
	beside  time.Duration // after begun, the rival held beside the function; 0: it did not
}

// runFunctions starts a function for each kind of Do of c, and then a rival for
// each on the client other; part is in their names. Each function waits for the end
// of its context, then calls stop.
func (w *lockWorld) runFunctions(c, other *holdfast.Client, part string, stop func(), opts ...holdfast.Option) (runs []*functionRun) {
	type work = func(context.Context) error
	ctx := w.limit()
	var kinds []string
	if kinds = []string{"mutex", "multi"}; w.traits.Shared {
		kinds = append(kinds, "reader", "permits")
	}
	for _, kind := range kinds {
		r := &functionRun{name: w.name + "/" + part + "/" + kind, asked: make(chan error, 1), result: make(chan error, 1), rival: make(chan error, 1)}
		runs = append(runs, r)
		do := func(fn work) error { return c.Mutex(r.name, opts...).Do(ctx, fn) }
		lock := other.Mutex(r.name).Lock
		switch kind {
		case "multi":
			do = func(fn work) error { return c.Multi([]string{r.name, r.name + "/2"}, opts...).Do(ctx, fn) }
		case "reader":
			do = func(fn work) error { return c.RWMutex(r.name, opts...).RDo(ctx, fn) }
			lock = other.RWMutex(r.name).Lock
		case "permits":
			do = func(fn work) error { return c.Semaphore(r.name, 3, opts...).Do(ctx, 2, fn) }
			lock = func(ctx context.Context) (*holdfast.Hold, error) {
				return other.Semaphore(r.name, 3).Acquire(ctx, 2)
			}
		}
		r.begun = time.Now()
		go func() {
			r.result <- do(func(ctx context.Context) error {
				r.running.Store(true)
				r.started.Store(true)
				defer r.running.Store(false)
				<-ctx.Done()
				r.asked <- context.Cause(ctx)
				stop()
				return nil
			})
		}()
		w.until("the function runs", func() bool { return r.started.Load() || len(r.result) > 0 })
		go func() {
			h, err := lock(ctx)
			if err == nil {
				if r.running.Load() {
					r.beside = time.Since(r.begun)
				}
				err = h.Unlock()
			}
			r.rival <- err
		}()
	}
	for _, r := range runs {
		w.until("the rival has a place", func() bool {
			return w.tickets(other, r.name) >= 2 || !r.running.Load() || len(r.rival) > 0
		})
	}
	return runs
}

// judge waits for the end of a run. It reports a rival that held beside the
// function earlier than allowed after the call of Do, unless the lock was lost
// for another reason, and returns the result of Do.
func (w *lockWorld) judge(r *functionRun, allowed time.Duration) error {
	err := <-r.result
	if got := <-r.rival; got != nil {
		w.Errorf("%s: the rival: %v", r.name, got)
	}
	lost, _ := errors.AsType[*holdfast.LostError](err)
	if r.beside > 0 && r.beside < allowed && (lost == nil || lost.Reason == holdfast.LossMaxHold) {
		w.Errorf("%s: another client held beside the function, %v after Do was called", r.name, r.beside)
	}
	return err
}

// gate returns a channel that open closes, or else the end of the case.
func (w *lockWorld) gate() (closed <-chan struct{}, open func()) {
	gate := make(chan struct{})
	open = sync.OnceFunc(func() { close(gate) })
	w.Cleanup(open)
	return gate, open
}

// longLease is an option for locks that the machine's load should not lose.
func (w *lockWorld) longLease() holdfast.Option {
	ttl := max(4*w.h.TTL, 4*time.Second)
	if w.traits.MaxTTL > 0 {
		ttl = min(ttl, w.traits.MaxTTL)
	}
	return holdfast.WithTTL(ttl)
}

// forever allows no rival beside a function.
const forever = time.Duration(1<<63 - 1)

var closingCases = []lockCase{
	{name: "shutdown", about: "Shutdown asks functions and holds to stop, renews their locks, and lets nobody in before they have (F134)", run: func(w *lockWorld) {
		c, other := w.client(), w.client()
		finish, end := w.gate()
		bare := w.lock(c.Mutex(w.name))
		runs := w.runFunctions(c, other, "waits", func() { <-finish }, w.longLease())
		local := make(chan error, 1)
		go func() { _, err := c.Mutex(w.name + "/waits/mutex").Lock(w.limit()); local <- err }()
		shut := make(chan error, 1)
		go func() { shut <- c.Shutdown(w.limit()) }()
		for _, r := range runs {
			if cause := <-r.asked; cause != holdfast.ErrShutdown && !errors.Is(cause, holdfast.ErrLost) {
				w.Errorf("%s: the context ended by %v", r.name, cause)
			}
		}
		if err := <-local; !errors.Is(err, holdfast.ErrClosed) {
			w.Errorf("a waiter got %v", err)
		}
		before := bare.Deadline()
		w.until("the hold is renewed", func() bool { return bare.Deadline().After(before) || bare.Err() != nil })
		if err := bare.Unlock(); err != nil && !errors.Is(err, holdfast.ErrLost) {
			w.Errorf("Unlock: %v", err)
		}
		select {
		case err := <-shut:
			w.Errorf("Shutdown returned %v while functions run", err)
		default:
		}
		end()
		for _, r := range runs {
			if err := w.judge(r, forever); err != nil && !errors.Is(err, holdfast.ErrLost) {
				w.Errorf("%s: %v", r.name, err)
			}
		}
		if err := <-shut; err != nil {
			w.Errorf("Shutdown: %v", err)
		}
	}},
	{name: "close under functions", about: "Close lets nobody in before the functions of Do have returned or its bound is over (F134)", run: func(w *lockWorld) {
		c, other := w.client(), w.client()
		runs := w.runFunctions(c, other, "ends", func() { time.Sleep(w.h.TTL / 20) }, w.longLease())
		start, bound := time.Now(), min(w.h.TTL/3, 5*time.Second)
		err := c.Close()
		if late, _ := errors.AsType[*holdfast.ShutdownError](err); late == nil && err != nil || late != nil && time.Since(start) < bound {
			w.Errorf("Close after %v: %v", time.Since(start), err)
		}
		for _, r := range runs {
			got := w.judge(r, start.Sub(r.begun)+bound)
			if got != nil && err == nil && !errors.Is(got, holdfast.ErrLost) {
				w.Errorf("%s: %v", r.name, got)
			}
		}
	}},
	{name: "close under a function that stays", about: "Close does not release a lock whose function has not returned, nor does the driver's (F134)", run: func(w *lockWorld) {
		c, other := w.client(), w.client()
		stay, end := w.gate()
		nested, result := make(chan *holdfast.Hold, 1), make(chan error, 1)
		go func() {
			result <- c.Mutex(w.name, w.longLease()).Do(w.limit(), func(ctx context.Context) error {
				h, err := c.Mutex(w.name).Lock(ctx)
				if err != nil {
					return err
				}
				nested <- h
				<-stay
				return nil
			})
		}()
		var h *holdfast.Hold
		select {
		case h = <-nested:
		case err := <-result:
			w.Fatalf("Do: %v", err)
		}
		until := h.Deadline() // the store keeps the lock for longer
		err := c.Close()
		if late, _ := errors.AsType[*holdfast.ShutdownError](err); late == nil || !slices.Equal(late.Held, []string{w.name}) {
			w.Errorf("Close: %v", err)
		}
		l, err := other.Inspect(w.limit(), w.name)
		if err != nil {
			w.Errorf("Inspect: %v", err)
		}
		if len(l.Holders) == 0 && time.Now().Before(until) {
			w.Error("Close released the lock under the function")
		}
		end()
		if err := <-result; !errors.Is(err, holdfast.ErrClosed) && !errors.Is(err, holdfast.ErrLost) {
			w.Errorf("Do: %v", err)
		}
		for _, t := range l.Holders {
			if err := other.Break(w.limit(), w.name, t.ID); err != nil && !errors.Is(err, holdfast.ErrNoTicket) {
				w.Errorf("Break: %v", err)
			}
		}
	}},
	{name: "max hold under functions", about: "MaxHold lets nobody in before the functions of Do have returned or its bound is over, and then somebody (F24 F134)", run: func(w *lockWorld) {
		c, other := w.client(), w.client()
		ttl, maxHold := max(w.h.TTL, w.traits.MinTTL), w.h.TTL/10
		allowed := maxHold + min(max(ttl/3, 100*time.Millisecond), 5*time.Second)
		opts := []holdfast.Option{holdfast.WithMaxHold(maxHold), holdfast.WithTTL(ttl)}
		entered, end := w.gate()
		stays := w.runFunctions(c, other, "stays", func() { <-entered }, opts...)
		ends := w.runFunctions(c, other, "ends", func() { time.Sleep(w.h.TTL / 20) }, opts...)
		for _, r := range stays { // functions that ignore their contexts
			err := <-r.rival
			if err != nil {
				w.Errorf("%s: the rival: %v", r.name, err)
			}
			r.rival <- err
		}
		end()
		for _, r := range append(stays, ends...) {
			if err := w.judge(r, allowed); !errors.Is(err, holdfast.ErrLost) {
				w.Errorf("%s: %v", r.name, err)
			}
		}
	}},
}
