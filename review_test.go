package holdfast_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memlock"
)

// A hand-over may reach a waiter that has just been made the joiner and has
// not sent its Join: whoever waits behind it becomes the joiner then.
func TestHandOverToTheJoinerPassesTheRoleOn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memlock.NewStore()
		o := client(t, memlock.New(s))
		c := client(t, memlock.New(s), holdfast.WithObserver(&holdfast.Observer{
			Waiting: func(string, holdfast.Holder) { time.Sleep(5 * time.Millisecond) }}))
		sem := c.Semaphore("s", 2)
		theirs := must(t)(o.Semaphore("s", 2).Acquire(bg, 1))
		ours := must(t)(sem.Acquire(bg, 1))
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(bg, ttl)
				defer cancel()
				h := must(t)(sem.Acquire(ctx, 1))
				time.Sleep(20 * time.Millisecond)
				unlock(t, h)
			})
			synctest.Wait() // the one before is busy telling its Observer
		}
		unlock(t, theirs) // to the first; the second is to join
		unlock(t, ours)   // to the second, before it has looked
		wg.Wait()
		if n := tickets(t, o, "s"); n != 0 {
			t.Errorf("%d tickets stay", n)
		}
	})
}

// The joiner may be handed a hold while its Join is under way. A waiter behind
// it that gives up does not abandon the ticket of that Join.
func TestHandOverDuringAJoin(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memlock.NewStore()
		d := hook(s)
		c, o := client(t, d), client(t, memlock.New(s))
		sem := c.Semaphore("s", 2)
		ours := must(t)(sem.Acquire(bg, 1))
		var joining atomic.Value
		d.join = func(_ context.Context, tk *driver.Ticket, next joinFunc) (driver.Place, error) {
			joining.Store(tk.ID)
			time.Sleep(time.Second)
			p, err := next()
			joining.Store("")
			return p, err
		}
		d.leave = func(_ context.Context, refs []driver.Ref, next batchFunc) ([]driver.Place, error) {
			if refs[0].ID == joining.Load() && !refs[0].Unsure {
				t.Error("a Leave overtook its Join")
			}
			return next()
		}
		var wg sync.WaitGroup
		hold := func(ctx context.Context) {
			wg.Go(func() {
				h, err := sem.Acquire(ctx, 1)
				if err != nil {
					wantErr(t, err, context.Canceled)
					return
				}
				time.Sleep(3 * ttl)
				unlock(t, h)
			})
			synctest.Wait()
		}
		ctx, cancel := context.WithCancel(bg)
		hold(bg)
		hold(ctx)
		unlock(t, ours)
		cancel()
		synctest.Wait()
		hold(bg)
		time.Sleep(ttl)
		if n := tickets(t, o, "s"); n != 2 {
			t.Errorf("%d tickets for two holds", n)
		}
		wg.Wait()
		if n := tickets(t, o, "s"); n != 0 {
			t.Errorf("%d tickets stay", n)
		}
	})
}

// F54: a Join that succeeds although Close has begun gives no hold, which
// nobody would watch.
func TestF54_CloseCrossesGrant(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memlock.NewStore()
		d := hook(s)
		c, o := client(t, d), client(t, memlock.New(s))
		d.join = func(_ context.Context, _ *driver.Ticket, next joinFunc) (driver.Place, error) {
			p, err := next()
			time.Sleep(time.Second) // deaf to its context
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

// F54: Close waits for the Unlock that is under way, and does not cut it off.
func TestF54_CloseDuringUnlock(t *testing.T) {
	for _, first := range []time.Duration{0, time.Second} {
		bubble(t, func(t *testing.T) {
			s := memlock.NewStore()
			d := hook(s)
			c, o := client(t, d), client(t, memlock.New(s))
			h := must(t)(c.Mutex("a").Lock(bg))
			d.leave = func(ctx context.Context, _ []driver.Ref, next batchFunc) ([]driver.Place, error) {
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

// F54: Unlock and Close at once, without fake time for the race detector.
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

// Detach of what is over says so, and what it found is what Unlock says.
func TestDetachAfterTheEnd(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := hook(memlock.NewStore())
		c := client(t, d)
		job := holdfast.WithOwner("job")
		h := must(t)(c.Mutex("m", job).Lock(bg))
		unlock(t, h)
		wantErr(t, h.Detach(), holdfast.ErrReleased)
		unlock(t, h)

		h = must(t)(c.Mutex("m", job).Lock(bg))
		l, _ := c.Inspect(bg, "m")
		d.push = func(string, driver.Place, func(string, driver.Place)) {} // not heard
		if err := c.Break(bg, "m", l.Tickets[0].ID); err != nil {
			t.Fatal(err)
		}
		wantErr(t, h.Detach(), holdfast.ErrLost)
		wantErr(t, h.Unlock(), holdfast.ErrLost)

		// MaxHold ends it while the last renewal is under way.
		h = must(t)(c.Mutex("m", job, holdfast.WithMaxHold(time.Second)).Lock(bg))
		d.renew = func(_ context.Context, _ []driver.Ref, next batchFunc) ([]driver.Place, error) {
			time.Sleep(2 * time.Second)
			return next()
		}
		wantErr(t, h.Detach(), holdfast.ErrLost)
		settle()
		if n := tickets(t, c, "m"); n != 0 {
			t.Errorf("%d tickets stay", n)
		}
	})
}

// The name may be held outside a Multi, which then nests. Its context leads to
// the nested hold, not to the outer one.
func TestMultiInsideAHold(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := client(t, memlock.New(memlock.NewStore()))
		outer := must(t)(c.Mutex("b").Lock(bg))
		ctx, cancel := context.WithTimeout(outer.Context(), time.Second)
		defer cancel()
		mh, err := c.Multi([]string{"a", "b"}).Lock(ctx)
		if err != nil {
			t.Fatal(err)
		}
		deeper, err := c.Multi([]string{"b", "a"}).TryLock(mh.Context())
		if err != nil {
			t.Fatalf("a Multi does not nest in itself: %v", err)
		}
		if deeper.Token("a") != mh.Token("a") || deeper.Token("b") != outer.Token() {
			t.Error("nested tokens differ")
		}
		for _, unlock := range []func() error{deeper.Unlock, mh.Unlock, outer.Unlock} {
			if err := unlock(); err != nil {
				t.Error(err)
			}
		}
	})
}
