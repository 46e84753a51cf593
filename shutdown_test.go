package holdfast_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memlock"
)

type work = func(ctx context.Context) error

// unlocker is a Hold or a MultiHold.
type unlocker interface {
	Context() context.Context
	Err() error
	Unlock() error
}

// lockKind is a kind of lock with the name "a".
type lockKind struct {
	lock func(*holdfast.Client, context.Context, ...holdfast.Option) (unlocker, error)
	try  func(*holdfast.Client, context.Context, ...holdfast.Option) (unlocker, error)
	do   func(*holdfast.Client, context.Context, work, ...holdfast.Option) error
}

// lockKinds has each kind of lock, and of Do. A semaphore is taken as a whole, so
// that all kinds but readers exclude themselves.
var lockKinds = map[string]lockKind{
	"Mutex": {
		func(c *holdfast.Client, ctx context.Context, o ...holdfast.Option) (unlocker, error) {
			return c.Mutex("a", o...).Lock(ctx)
		},
		func(c *holdfast.Client, ctx context.Context, o ...holdfast.Option) (unlocker, error) {
			return c.Mutex("a", o...).TryLock(ctx)
		},
		func(c *holdfast.Client, ctx context.Context, fn work, o ...holdfast.Option) error {
			return c.Do(ctx, "a", fn, o...)
		},
	},
	"writer": {
		func(c *holdfast.Client, ctx context.Context, o ...holdfast.Option) (unlocker, error) {
			return c.RWMutex("a", o...).Lock(ctx)
		},
		func(c *holdfast.Client, ctx context.Context, o ...holdfast.Option) (unlocker, error) {
			return c.RWMutex("a", o...).TryLock(ctx)
		},
		func(c *holdfast.Client, ctx context.Context, fn work, o ...holdfast.Option) error {
			return c.RWMutex("a", o...).Do(ctx, fn)
		},
	},
	"reader": {
		func(c *holdfast.Client, ctx context.Context, o ...holdfast.Option) (unlocker, error) {
			return c.RWMutex("a", o...).RLock(ctx)
		},
		func(c *holdfast.Client, ctx context.Context, o ...holdfast.Option) (unlocker, error) {
			return c.RWMutex("a", o...).TryRLock(ctx)
		},
		func(c *holdfast.Client, ctx context.Context, fn work, o ...holdfast.Option) error {
			return c.RWMutex("a", o...).RDo(ctx, fn)
		},
	},
	"Semaphore": {
		func(c *holdfast.Client, ctx context.Context, o ...holdfast.Option) (unlocker, error) {
			return c.Semaphore("a", 3, o...).Acquire(ctx, 3)
		},
		func(c *holdfast.Client, ctx context.Context, o ...holdfast.Option) (unlocker, error) {
			return c.Semaphore("a", 3, o...).TryAcquire(ctx, 3)
		},
		func(c *holdfast.Client, ctx context.Context, fn work, o ...holdfast.Option) error {
			return c.Semaphore("a", 3, o...).Do(ctx, 3, fn)
		},
	},
	"Multi": {
		func(c *holdfast.Client, ctx context.Context, o ...holdfast.Option) (unlocker, error) {
			return c.Multi([]string{"a", "b"}, o...).Lock(ctx)
		},
		func(c *holdfast.Client, ctx context.Context, o ...holdfast.Option) (unlocker, error) {
			return c.Multi([]string{"a", "b"}, o...).TryLock(ctx)
		},
		func(c *holdfast.Client, ctx context.Context, fn work, o ...holdfast.Option) error {
			return c.Multi([]string{"a", "b"}, o...).Do(ctx, fn)
		},
	},
}

// eachKind runs f in a bubble for each kind of lock, with two clients of a store
// and the lock by which another client would interfere.
func eachKind(t *testing.T, f func(t *testing.T, k, rival lockKind, c, other *holdfast.Client)) {
	for name, k := range lockKinds {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				rival := k
				if name == "reader" {
					rival = lockKinds["writer"]
				}
				s := memlock.NewStore()
				f(t, k, rival, client(t, memlock.New(s)), client(t, memlock.New(s)))
			})
		})
	}
}

// enterAfter locks on other and notes when; the returned function unlocks and
// returns the time.
func enterAfter(t *testing.T, rival lockKind, other *holdfast.Client) (entered func() time.Time) {
	in := make(chan time.Time, 1)
	go func() {
		h, err := rival.lock(other, bg)
		if err != nil {
			t.Error(err)
			in <- time.Time{}
			return
		}
		in <- time.Now()
		_ = h.Unlock()
	}()
	synctest.Wait()
	return func() time.Time { at := <-in; synctest.Wait(); return at }
}

// wantShutdownError checks that err is a *ShutdownError with these names.
func wantShutdownError(t *testing.T, err, cause error, names ...string) {
	t.Helper()
	late, _ := errors.AsType[*holdfast.ShutdownError](err)
	if late == nil || !slices.Equal(late.Held, names) || !errors.Is(err, cause) {
		t.Errorf("error %v, want a ShutdownError of %q because of %v", err, names, cause)
	}
}

// TestF134_ShutdownWaitsForFunctions covers F134. It checks for each kind of lock
// that Shutdown ends the context of Do's function with ErrShutdown, keeps the
// lock renewed until the function returns, and lets the next client in only then.
func TestF134_ShutdownWaitsForFunctions(t *testing.T) {
	eachKind(t, func(t *testing.T, k, rival lockKind, c, other *holdfast.Client) {
		var returned time.Time
		done := make(chan error, 1)
		go func() {
			done <- k.do(c, bg, func(ctx context.Context) error {
				<-ctx.Done()
				wantErr(t, context.Cause(ctx), holdfast.ErrShutdown)
				time.Sleep(3 * ttl) // cleans up, for longer than a lease
				returned = time.Now()
				return nil
			})
		}()
		synctest.Wait()
		entered := enterAfter(t, rival, other)
		if err := c.Shutdown(bg); err != nil {
			t.Errorf("Shutdown: %v", err)
		}
		if err := <-done; err != nil {
			t.Errorf("Do: %v", err)
		}
		if at := entered(); at.Before(returned) {
			t.Errorf("the next client holds %v before the function has returned", returned.Sub(at))
		}
	})
}

// TestF134_ShutdownWaitsForHolds covers F134. It checks for each kind of lock
// that a bare hold is asked to stop, stays valid until Unlock, and that Shutdown
// returns then.
func TestF134_ShutdownWaitsForHolds(t *testing.T) {
	eachKind(t, func(t *testing.T, k, rival lockKind, c, other *holdfast.Client) {
		before, err := k.lock(c, bg)
		if err != nil {
			t.Fatal(err)
		}
		ctx := before.Context()
		entered := enterAfter(t, rival, other)
		done := make(chan error, 1)
		go func() { done <- c.Shutdown(bg) }()
		<-ctx.Done()
		wantErr(t, context.Cause(ctx), holdfast.ErrShutdown)
		wantErr(t, context.Cause(before.Context()), holdfast.ErrShutdown)
		time.Sleep(3 * ttl)
		if err := before.Err(); err != nil {
			t.Errorf("Err: %v", err)
		}
		select {
		case err := <-done:
			t.Fatalf("Shutdown returned %v with a lock held", err)
		default:
		}
		unlocked := time.Now()
		if err := before.Unlock(); err != nil {
			t.Errorf("Unlock: %v", err)
		}
		if err := <-done; err != nil {
			t.Errorf("Shutdown: %v", err)
		}
		if at := entered(); at.Before(unlocked) {
			t.Error("the next client held before Unlock")
		}
		wantErr(t, before.Err(), holdfast.ErrReleased)
	})
}

// TestF134_ContextMadeDuringShutdown covers F134. It checks that a context that
// is made only after Shutdown has begun has ended, too.
func TestF134_ContextMadeDuringShutdown(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := client(t, memlock.New(memlock.NewStore()))
		h := must(t)(c.Mutex("a").Lock(bg))
		ended, cancel := context.WithCancel(bg)
		cancel()
		wantShutdownError(t, c.Shutdown(ended), context.Canceled, "a")
		wantErr(t, context.Cause(h.Context()), holdfast.ErrShutdown)
		unlock(t, h)
	})
}

// TestF134_ShutdownRefusesCalls covers F134. It checks that from Shutdown on
// each kind of lock is refused with ErrClosed, also nested in a hold, that waits
// end with it and leave nothing, and that Inspect and the like go on working.
func TestF134_ShutdownRefusesCalls(t *testing.T) {
	eachKind(t, func(t *testing.T, k, _ lockKind, c, other *holdfast.Client) {
		mine := must(t)(c.Mutex("mine").Lock(bg))
		theirs, err := lockKinds["Mutex"].lock(other, bg)
		if err != nil {
			t.Fatal(err)
		}
		errs := make(chan error, 6)
		for range 3 { // waiters for another client's lock
			go func() { _, err := c.Mutex("a").Lock(bg); errs <- err }()
			go func() { errs <- c.Mutex("a").Do(mine.Context(), func(context.Context) error { return nil }) }()
		}
		synctest.Wait()
		ended, cancel := context.WithCancel(bg)
		cancel()
		wantShutdownError(t, c.Shutdown(ended), context.Canceled, "mine")
		for range 6 {
			wantErr(t, <-errs, holdfast.ErrClosed)
		}
		settle()
		if n := tickets(t, other, "a"); n != 1 {
			t.Errorf("%d tickets, want that of the holder alone", n)
		}
		if err := theirs.Unlock(); err != nil {
			t.Error(err)
		}
		for _, ctx := range []context.Context{bg, mine.Context(), ended} {
			_, err := k.lock(c, ctx)
			wantErr(t, err, holdfast.ErrClosed)
			_, err = k.try(c, ctx)
			wantErr(t, err, holdfast.ErrClosed)
			wantErr(t, k.do(c, ctx, func(context.Context) error { t.Error("the function runs"); return nil }), holdfast.ErrClosed)
			_, err = c.Mutex("mine").Lock(ctx) // would nest
			wantErr(t, err, holdfast.ErrClosed)
		}
		l, err := c.Inspect(bg, "mine")
		if err != nil || len(l.Holders) != 1 {
			t.Errorf("Inspect: %v, %v", l, err)
		}
		names := 0
		for _, err := range c.Names(bg, "") {
			names++
			wantErr(t, err, nil)
		}
		if names != 1 {
			t.Errorf("%d names", names)
		}
		if _, err := c.Check(bg); errors.Is(err, holdfast.ErrClosed) {
			t.Errorf("Check: %v", err)
		}
		wantErr(t, c.Break(bg, "mine", l.Holders[0].ID), nil)
		synctest.Wait()
		wantErr(t, mine.Unlock(), holdfast.ErrLost)
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		for range c.Names(bg, "") {
			_, err = c.Inspect(bg, "mine")
			wantErr(t, err, holdfast.ErrClosed)
			wantErr(t, c.Break(bg, "mine", "x"), holdfast.ErrClosed)
		}
		for _, err := range c.Names(bg, "") {
			wantErr(t, err, holdfast.ErrClosed)
		}
	})
}

// TestF134_ShutdownEndsNestedWaits covers F134. It checks that a wait for a hold
// of this client, also one nested in it, ends with ErrClosed, and that Unlock
// passes the lock to the next client, not to a local waiter.
func TestF134_ShutdownEndsNestedWaits(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memlock.NewStore()
		c, other := client(t, memlock.New(s)), client(t, memlock.New(s))
		h := must(t)(c.Mutex("a").Lock(bg))
		in := must(t)(c.Mutex("a").Lock(h.Context()))
		errs := make(chan error, 20)
		for range 10 {
			go func() { _, err := c.Mutex("a").Lock(h.Context()); errs <- err }()
			go func() { _, err := c.Mutex("a").Lock(bg); errs <- err }()
		}
		synctest.Wait()
		entered := enterAfter(t, lockKinds["Mutex"], other)
		go func() { <-h.Context().Done(); _ = in.Unlock(); _ = h.Unlock() }()
		if err := c.Shutdown(bg); err != nil {
			t.Errorf("Shutdown: %v", err)
		}
		entered()
		for range 20 {
			wantErr(t, <-errs, holdfast.ErrClosed)
		}
	})
}

// TestF134_UnlockSkipsWaitersThatEnd covers F134. It checks, in real time, that a
// lock unlocked beside Shutdown is never handed to a waiter of the same client.
func TestF134_UnlockSkipsWaitersThatEnd(t *testing.T) {
	for range 300 {
		s := memlock.NewStore()
		c, other := client(t, memlock.New(s)), client(t, memlock.New(s))
		h := must(t)(c.Mutex("a").Lock(bg))
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				if h, err := c.Mutex("a").Lock(bg); err == nil { // before Shutdown
					_ = h.Unlock()
				} else {
					wantErr(t, err, holdfast.ErrClosed)
				}
			})
		}
		all.Go(func() { unlock(t, h) })
		if err := c.Shutdown(bg); err != nil {
			t.Errorf("Shutdown: %v", err)
		}
		all.Wait()
		if n := tickets(t, other, "a"); n != 0 {
			t.Errorf("%d tickets stay", n)
		}
	}
}

// TestF134_ShutdownOutOfTime covers F134. It checks that a Shutdown whose
// context ends first takes nothing away, and that it can be called again.
func TestF134_ShutdownOutOfTime(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memlock.NewStore()
		c, other := client(t, memlock.New(s)), client(t, memlock.New(s))
		a, b := must(t)(c.Mutex("a").Lock(bg)), must(t)(c.Mutex("b").Lock(bg))
		r1, r2 := must(t)(c.RWMutex("r").RLock(bg)), must(t)(c.RWMutex("r").RLock(bg))
		for range 3 {
			cause := errors.New("SIGKILL is near")
			ctx, cancel := context.WithTimeoutCause(bg, ttl, cause)
			start := time.Now()
			wantShutdownError(t, c.Shutdown(ctx), cause, "a", "b", "r", "r")
			if took := time.Since(start); took != ttl {
				t.Errorf("Shutdown took %v", took)
			}
			cancel()
			for _, h := range []*holdfast.Hold{a, b, r1, r2} {
				wantErr(t, h.Err(), nil)
			}
			_, err := other.Mutex("a").TryLock(bg)
			wantErr(t, err, holdfast.ErrHeld)
		}
		for _, h := range []*holdfast.Hold{a, b, r1} {
			unlock(t, h)
		}
		ctx, cancel := context.WithTimeout(bg, time.Second)
		defer cancel()
		wantShutdownError(t, c.Shutdown(ctx), context.DeadlineExceeded, "r")
		unlock(t, r2)
		if err := c.Shutdown(ctx); err != nil { // nothing is held: the context does not matter
			t.Errorf("Shutdown: %v", err)
		}
		wantErr(t, c.Shutdown(bg), nil)
		wantErr(t, c.Close(), nil)
		if err := c.Shutdown(noContext); err == nil {
			t.Error("a nil context was taken")
		}
	})
}

// TestF134_ResultOfDo covers F134. It checks that Do returns its function's
// result after Shutdown and Close, with ErrShutdown joined to an error.
func TestF134_ResultOfDo(t *testing.T) {
	oops := errors.New("oops")
	for name, end := range map[string]func(*holdfast.Client) error{
		"Shutdown": func(c *holdfast.Client) error { return c.Shutdown(bg) },
		"Close":    (*holdfast.Client).Close,
	} {
		t.Run(name, func(t *testing.T) {
			eachKind(t, func(t *testing.T, k, _ lockKind, c, _ *holdfast.Client) {
				errs := make(chan error, 1)
				for _, fn := range []struct {
					returns func(context.Context) error
					want    []error
				}{
					{func(context.Context) error { return nil }, nil},
					{func(context.Context) error { return oops }, []error{oops, holdfast.ErrShutdown}},
					{func(ctx context.Context) error { return ctx.Err() }, []error{context.Canceled, holdfast.ErrShutdown}},
					{context.Cause, []error{holdfast.ErrShutdown}},
				} {
					c := client(t, memlock.New(memlock.NewStore()))
					go func() {
						errs <- k.do(c, bg, func(ctx context.Context) error { <-ctx.Done(); return fn.returns(ctx) })
					}()
					synctest.Wait()
					if err := end(c); err != nil {
						t.Errorf("%s: %v", name, err)
					}
					err := <-errs
					if fn.want == nil && err != nil {
						t.Errorf("Do: %v", err)
					}
					for _, want := range fn.want {
						wantErr(t, err, want)
					}
					if errors.Is(err, holdfast.ErrClosed) {
						t.Errorf("Do: %v, though the function returned in time", err)
					}
				}
			})
		})
	}
}

// TestF134_DetachDuringShutdown covers F134. It checks that Detach keeps the lock
// at the store for its owner, and that Shutdown then returns.
func TestF134_DetachDuringShutdown(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memlock.NewStore()
		c, other := client(t, memlock.New(s)), client(t, memlock.New(s))
		h := must(t)(c.Mutex("a", holdfast.WithOwner("job")).Lock(bg))
		done := make(chan error, 1)
		go func() { done <- c.Shutdown(bg) }()
		<-h.Context().Done()
		if err := h.Detach(); err != nil {
			t.Errorf("Detach: %v", err)
		}
		if err := <-done; err != nil {
			t.Errorf("Shutdown: %v", err)
		}
		next := must(t)(other.Mutex("a", holdfast.WithOwner("job")).TryLock(bg))
		if next.Token() != h.Token() {
			t.Errorf("token %d, want %d: the lock was released", next.Token(), h.Token())
		}
		unlock(t, next)
	})
}

// TestF134_ShutdownAndDeadStore covers F134. It checks that Shutdown returns when
// the holds are lost, and that a release that the dead store did not confirm
// does not keep it.
func TestF134_ShutdownAndDeadStore(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memlock.NewStore()
		d := hook(s)
		c, other := client(t, d), client(t, memlock.New(s))
		lost, done := make(chan error, 1), make(chan error, 1)
		go func() {
			lost <- c.Do(bg, "lost", func(ctx context.Context) error { time.Sleep(2 * ttl); return context.Cause(ctx) })
		}()
		go func() {
			done <- c.Do(bg, "done", func(ctx context.Context) error { <-ctx.Done(); return nil })
		}()
		synctest.Wait()
		d.cut()
		start := time.Now()
		_, isStoreError := errors.AsType[*holdfast.StoreError](c.Shutdown(bg))
		if took := time.Since(start); took > ttl+10*time.Second || !isStoreError {
			t.Errorf("Shutdown took %v, a StoreError: %t", took, isStoreError)
		}
		if err := <-done; err != nil {
			t.Errorf("Do of a function that ended in time: %v", err)
		}
		err := <-lost
		wantErr(t, err, holdfast.ErrLost)
		time.Sleep(ttl)
		unlock(t, must(t)(other.Mutex("done").TryLock(bg)))
	})
}

// TestF134_ShutdownOfNothing covers F134. It checks that Shutdown of a client
// without holds closes the client, whatever became of the context.
func TestF134_ShutdownOfNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		before := goroutines()
		ended, cancel := context.WithCancel(bg)
		cancel()
		for range 50 {
			d := hook(memlock.NewStore())
			c := client(t, d)
			unlock(t, must(t)(c.Mutex("a").Lock(bg)))
			if err := c.Shutdown(ended); err != nil {
				t.Errorf("Shutdown: %v", err)
			}
			if _, err := d.Join(bg, &driver.Ticket{ID: "x:1", Name: "a", Units: 1, Limit: 1, TTL: ttl}, false); !errors.Is(err, driver.ErrClosed) {
				t.Errorf("the driver is open: %v", err)
			}
		}
		synctest.Wait()
		if after := goroutines(); after > before {
			t.Errorf("%d goroutines, %d before", after, before)
		}
	})
}
