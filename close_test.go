package holdfast_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memlock"
)

func TestF54_CloseEndsWaitsAndHolds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memlock.NewStore()
		before := goroutines()
		c := client(t, memlock.New(s))
		other := client(t, memlock.New(s))
		h := must(t)(c.Mutex("a").Lock(bg))
		nested := must(t)(c.Mutex("a").Lock(h.Context()))
		shared := must(t)(c.RWMutex("rw").RLock(bg))
		theirs := must(t)(other.Mutex("b").Lock(bg))
		errs := make(chan error, 6)
		for _, name := range []string{"a", "b", "a", "b"} {
			go func() { _, err := c.Mutex(name).Lock(bg); errs <- err }()
		}
		go func() { _, err := c.Mutex("a").Lock(h.Context()); errs <- err }() // waits for the nested hold
		synctest.Wait()
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				if err := c.Close(); err != nil {
					t.Errorf("Close: %v", err)
				}
			})
		}
		wg.Wait()
		for range 5 {
			wantErr(t, <-errs, holdfast.ErrClosed)
		}
		for _, h := range []*holdfast.Hold{h, nested, shared} {
			wantErr(t, context.Cause(h.Context()), holdfast.ErrClosed)
			wantErr(t, h.Err(), holdfast.ErrClosed)
			wantErr(t, h.Unlock(), holdfast.ErrClosed)
		}
		_, err := c.Mutex("a").Lock(bg)
		wantErr(t, err, holdfast.ErrClosed)
		unlock(t, must(t)(other.Mutex("a").TryLock(bg)))
		unlock(t, must(t)(other.RWMutex("rw").TryLock(bg)))
		unlock(t, theirs)
		if n := tickets(t, other, "b"); n != 0 {
			t.Errorf("%d tickets stay", n)
		}
		if err := other.Close(); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if after := goroutines(); after > before {
			t.Errorf("%d goroutines, %d before", after, before)
		}
	})
}

func TestF54_CloseOfSilentStore(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := hook(memlock.NewStore())
		c := client(t, d)
		h := must(t)(c.Mutex("a").Lock(bg))
		joining := make(chan error)
		d.cut()
		go func() { _, err := c.Mutex("b").Lock(bg); joining <- err }()
		synctest.Wait()
		start := time.Now()
		err := c.Close()
		if got := time.Since(start); got > 5*time.Second {
			t.Errorf("Close took %v", got)
		}
		if _, ok := errors.AsType[*holdfast.StoreError](err); !ok {
			t.Errorf("Close: %v, want that it could not release", err)
		}
		wantErr(t, <-joining, holdfast.ErrClosed)
		wantErr(t, h.Err(), holdfast.ErrClosed)
	})
}

func TestF55_ObserverMayDoAnything(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memlock.NewStore()
		d := hook(s)
		var c *holdfast.Client
		var h *holdfast.Hold
		release := make(chan struct{})
		n := 0
		c = client(t, d, holdfast.WithObserver(onLoss(func(*holdfast.LostError) {
			switch n++; n {
			case 1:
				wantErr(t, h.Unlock(), holdfast.ErrLost)
				unlock(t, must(t)(c.Mutex("other").Lock(bg)))
				panic("observer")
			case 2:
				<-release
			default:
				c.Close()
			}
		})))
		kept := must(t)(c.Mutex("kept").Lock(bg))
		for range 3 {
			h = must(t)(c.Mutex("a").Lock(bg))
			l, _ := c.Inspect(bg, "a")
			if err := c.Break(bg, "a", l.Holders[0].ID); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if n < 3 {
				time.Sleep(2 * ttl)
				if kept.Err() != nil {
					t.Fatalf("after loss %d another hold is %v", n, kept.Err())
				}
			}
		}
		synctest.Wait()
		wantErr(t, kept.Err(), holdfast.ErrClosed)
		close(release)
	})
}

// TestF55_ObserverPanics checks that an Observer that panics at the start or
// end of a hold changes nothing.
func TestF55_ObserverPanics(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memlock.NewStore()
		a := client(t, memlock.New(s))
		b := client(t, memlock.New(s), holdfast.WithObserver(&holdfast.Observer{
			LockStart: func(context.Context, holdfast.LockStartInfo) context.Context { panic("starting") },
			LockWait:  func(context.Context, holdfast.LockWaitInfo) { panic("waiting") },
			LockDone:  func(context.Context, holdfast.LockDoneInfo) context.Context { panic("done") },
			HoldDone:  func(context.Context, holdfast.HoldDoneInfo) { panic("released") },
		}))
		h := must(t)(a.Mutex("a").Lock(bg))
		got := make(chan *holdfast.Hold)
		go func() { got <- must(t)(b.Mutex("a").Lock(bg)) }()
		synctest.Wait()
		unlock(t, h)
		unlock(t, <-got)
		if n := tickets(t, a, "a"); n != 0 {
			t.Errorf("%d tickets stay", n)
		}
	})
}

// TestF54_CloseCrossesGrant covers F54. It checks that a Join that succeeds
// after Close has begun gives no hold: no goroutine would watch it.
func TestF54_CloseCrossesGrant(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memlock.NewStore()
		d := hook(s)
		c, o := client(t, d), client(t, memlock.New(s))
		d.join = func(_ context.Context, _ *driver.Ticket, next joinFunc) (driver.Status, error) {
			p, err := next()
			time.Sleep(time.Second) // ignores its context
			return p, err
		}
		errs := make(chan error, 2)
		for range 2 {
			go func() { _, err := c.Mutex("a").Lock(bg); errs <- err }()
		}
		synctest.Wait()
		if err := c.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		wantErr(t, <-errs, holdfast.ErrClosed)
		wantErr(t, <-errs, holdfast.ErrClosed)
		if n := tickets(t, o, "a"); n != 0 {
			t.Errorf("%d tickets stay", n)
		}
	})
}

// TestF54_CloseDuringUnlock covers F54. It checks that Close waits for an
// Unlock in flight, and does not cut it off.
func TestF54_CloseDuringUnlock(t *testing.T) {
	for _, first := range []time.Duration{0, time.Second} {
		bubble(t, func(t *testing.T) {
			s := memlock.NewStore()
			d := hook(s)
			c, o := client(t, d), client(t, memlock.New(s))
			h := must(t)(c.Mutex("a").Lock(bg))
			d.leave = func(ctx context.Context, _ []driver.Ref, next batchFunc) ([]driver.Status, error) {
				select {
				case <-time.After(2 * time.Second):
					return next()
				case <-ctx.Done():
					return nil, ctx.Err()
				}
			}
			done := make(chan error)
			go func() { done <- h.Unlock() }()
			time.Sleep(first)
			if first == 0 {
				synctest.Wait()
			}
			if err := c.Close(); err != nil {
				t.Errorf("Close: %v", err)
			}
			if err := <-done; err != nil {
				t.Errorf("Unlock: %v", err)
			}
			if n := tickets(t, o, "a"); n != 0 {
				t.Errorf("%d tickets stay", n)
			}
		})
	}
}

// TestF54_CloseRacesWithUnlock covers F54. It runs Unlock and Close at once,
// without fake time, for the race detector.
func TestF54_CloseRacesWithUnlock(t *testing.T) {
	for range 300 {
		s := memlock.NewStore()
		c, o := client(t, memlock.New(s)), client(t, memlock.New(s))
		var wg sync.WaitGroup
		for i := range 4 {
			h := must(t)(c.Semaphore("s", 4, holdfast.WithMaxHold(time.Duration(i)*20*time.Microsecond)).Acquire(bg, 1))
			wg.Go(func() {
				if err := h.Unlock(); err != nil && !errors.Is(err, holdfast.ErrClosed) && !errors.Is(err, holdfast.ErrLost) {
					t.Error(err)
				}
			})
		}
		wg.Go(func() {
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		})
		wg.Wait()
		if n := tickets(t, o, "s"); n != 0 {
			t.Errorf("%d tickets stay", n)
		}
	}
}

// TestClosesAtOnceShareTheirResult has two goroutines close a client whose store is
// silent: both wait for the store's bound in fake time, and return the same error.
func TestClosesAtOnceShareTheirResult(t *testing.T) {
	bubble(t, func(t *testing.T) {
		hooks := hook(memlock.NewStore())
		c := client(t, hooks)
		must(t)(c.Mutex("a").Lock(bg))
		hooks.cut()
		other := make(chan error, 1)
		go func() { other <- c.Close() }()
		synctest.Wait()
		err := c.Close()
		if _, ok := errors.AsType[*holdfast.StoreError](err); !ok {
			t.Errorf("Close: %v, want a StoreError", err)
		}
		if got := <-other; got != err {
			t.Errorf("the other Close: %v, want %v", got, err)
		}
	})
}
