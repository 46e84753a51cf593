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

// runFunctions starts a function for each kind of Do of c, of Once and of Lead, and then
// a rival for each on the client other; part is in their names. Each function waits for
// the end of its context, then calls stop.
func (w *lockWorld) runFunctions(c, other *holdfast.Client, part string, stop func(), opts ...holdfast.Option) (runs []*functionRun) {
	type work = func(context.Context) error
	ctx := w.limit()
	var kinds []string
	if kinds = []string{"mutex", "multi", "lead"}; w.traits.Shared {
		kinds = append(kinds, "reader", "writer", "permits")
	}
	if w.traits.Marks {
		kinds = append(kinds, "once")
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
		case "writer":
			do = func(fn work) error { return c.RWMutex(r.name, opts...).Do(ctx, fn) }
			lock = other.RWMutex(r.name).RLock
		case "once":
			do = func(fn work) error {
				_, err := c.Once(ctx, r.name, time.Unix(1, 0), fn, opts...)
				return err
			}
		case "lead": // for one term, whose loss is the result
			do = func(fn work) error {
				ctx, cancel := context.WithCancel(ctx)
				defer cancel()
				var lost error
				err := c.Lead(ctx, r.name, func(ctx context.Context) error {
					defer cancel()
					err := fn(ctx)
					if cause := context.Cause(ctx); errors.Is(cause, holdfast.ErrLost) {
						lost = cause
					}
					return err
				}, opts...)
				return errors.Join(err, lost)
			}
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
	{name: "close under functions", about: "Close lets nobody in before the functions of Do, Once and Lead have returned or its bound is over (F134)", run: func(w *lockWorld) {
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
	{name: "max hold under functions", about: "MaxHold lets nobody in before the functions of Do, Once and Lead have returned or its bound is over, and then somebody (F24 F134)", run: func(w *lockWorld) {
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
	{name: "close while the store is silent", about: "Close and Shutdown end in time while the store answers no renewal, wait or release (F136)", pause: true, run: func(w *lockWorld) {
		other := w.clientWithLongTTL()
		ends := map[string]func(c *holdfast.Client) error{
			"Close":    (*holdfast.Client).Close,
			"Shutdown": func(c *holdfast.Client) error { return c.Shutdown(w.limit()) },
		}
		clients := make(map[string]*silencedClient)
		for how := range ends {
			clients[how] = w.silencedClient(other, w.name+"/"+how)
		}
		resume := sync.OnceFunc(w.h.Pause(w.T))
		defer resume()
		for _, c := range clients {
			c.ask()
		}
		time.Sleep(w.h.TTL / 2) // renewals are under way
		// For functions, for the releases of their locks, and for the driver.
		limit := 2*min(max(w.h.TTL/3, 100*time.Millisecond), 5*time.Second) + 2*time.Second + w.h.Slack
		var closing sync.WaitGroup
		for how, c := range clients {
			closing.Go(func() {
				start := time.Now()
				err := ends[how](c.Client)
				if took := time.Since(start); w.still.exceed(took, limit, start) {
					w.Errorf("%s took %v while the store was silent: %v", how, took, err)
				}
			})
		}
		closing.Wait()
		resume()
		for how, c := range clients {
			if err := <-c.waiter; !errors.Is(err, holdfast.ErrClosed) {
				w.Errorf("%s: a waiter got %v", how, err)
			}
			c.calls.Wait()
			_ = c.busy.Unlock()
		}
	}},
	{name: "closed by a callback", about: "a function that a wait calls may close the client: the wait ends and its place is free (F111)", run: func(w *lockWorld) {
		other := w.client()
		for at, option := range map[string]func(f func()) holdfast.ClientOption{
			"LockWait": func(f func()) holdfast.ClientOption {
				return holdfast.WithObserver(&holdfast.Observer{LockWait: func(context.Context, holdfast.LockWaitInfo) { f() }})
			},
			"WithWaiting": func(f func()) holdfast.ClientOption { return holdfast.WithWaiting(func(holdfast.Waiting) { f() }) },
		} {
			for does, end := range map[string]func(c *holdfast.Client) error{
				"Close":    (*holdfast.Client).Close,
				"Shutdown": func(c *holdfast.Client) error { return c.Shutdown(w.limit()) },
			} {
				if !w.closedByCallback(other, w.name+"/"+at+"/"+does, option, end) {
					return
				}
			}
		}
	}},
}

// A silencedClient is one that closes while its store is silent, with a hold, a function
// and a wait.
type silencedClient struct {
	*holdfast.Client
	w      *lockWorld
	name   string
	busy   *holdfast.Hold // the client waits for it
	waiter <-chan error
	calls  sync.WaitGroup
}

// silencedClient opens such a client, whose wait is for a lock of another client's. Its
// work ends when it is asked to.
func (w *lockWorld) silencedClient(other *holdfast.Client, name string) *silencedClient {
	w.Helper()
	d := newLink(w.h.Open(w.T))
	c := &silencedClient{Client: w.clientThrough(d), w: w, name: name}
	h := w.lock(c.Mutex(name + "/held"))
	c.calls.Go(func() {
		<-h.Context().Done()
		_ = h.Unlock()
	})
	ctx, started := w.limit(), make(chan struct{})
	c.calls.Go(func() {
		_ = c.Do(ctx, name+"/function", func(ctx context.Context) error {
			close(started)
			<-ctx.Done()
			return nil
		})
	})
	<-started
	c.busy = w.lock(other.Mutex(name + "/busy"))
	joined := d.joins.Load()
	c.waiter = w.lockInBackground(c.Mutex(name + "/busy"))
	w.until("it knows that it waits", func() bool { return d.joins.Load() > joined })
	return c
}

// ask sends requests that the store does not answer.
func (c *silencedClient) ask() {
	ctx := c.w.limit()
	c.calls.Go(func() { _, _ = c.Mutex(c.name + "/free").Lock(ctx) })
	c.calls.Go(func() { _, _ = c.Mutex(c.name + "/busy").TryLock(ctx) })
	c.calls.Go(func() { _, _ = c.Inspect(ctx, c.name+"/busy") })
	c.calls.Go(func() { _ = c.Ping(ctx) })
}

// closedByCallback waits for a lock with a client that the function of option ends, and
// reports whether the function could do so.
func (w *lockWorld) closedByCallback(other *holdfast.Client, name string, option func(f func()) holdfast.ClientOption, end func(*holdfast.Client) error) bool {
	w.Helper()
	h := w.lock(other.Mutex(name, w.longLease()))
	var c *holdfast.Client
	var first atomic.Bool
	ended := make(chan error, 1)
	returned := true
	c = w.client(option(func() {
		if first.Swap(true) {
			return
		}
		go func() { ended <- end(c) }()
		select {
		case err := <-ended:
			ended <- err
		case <-time.After(w.h.TTL + 10*time.Second):
			returned = false
			w.Errorf("%s: it waits for the function that called it", name)
		}
	}), w.longLease())
	if _, err := c.Mutex(name).Lock(w.limit()); !errors.Is(err, holdfast.ErrClosed) {
		w.Errorf("%s: Lock: %v", name, err)
	}
	err := <-ended
	if unconfirmed, _ := errors.AsType[*holdfast.StoreError](err); unconfirmed == nil && err != nil {
		w.Errorf("%s: %v", name, err)
	}
	if start := time.Now(); returned && err == nil { // a lock server gives the place up a moment later
		w.until("its place is free", func() bool { return w.tickets(other, name) <= 1 })
		if took, most := time.Since(start), w.h.TTL/4+w.h.Slack; w.still.exceed(took, most, start) {
			w.Errorf("%s: its place was free after %v", name, took)
		}
	}
	if err := h.Unlock(); err != nil && !errors.Is(err, holdfast.ErrLost) {
		w.Errorf("Unlock: %v", err)
	}
	return returned
}
