package holdfast_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memlock"
)

// TestF107_LockAfterLongRefusal checks that Lock waits for the first answer of
// a store that was not ready for longer than the TTL, though that answer takes
// a moment: the store carried out nothing meanwhile that could have expired.
func TestF107_LockAfterLongRefusal(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := hook(memlock.NewStore())
		c := client(t, d, holdfast.WithTTL(2*time.Second))
		start := time.Now()
		d.join = func(ctx context.Context, _ *driver.Ticket, next joinFunc) (driver.Status, error) {
			if time.Since(start) < 3*time.Second {
				return driver.Status{}, driver.NotReady(0, "loading")
			}
			select {
			case <-time.After(100 * time.Millisecond):
				return next()
			case <-ctx.Done():
				return driver.Status{}, driver.Errorf(driver.Unavailable, "connecting: %w", ctx.Err())
			}
		}
		ctx, cancel := context.WithTimeout(bg, time.Minute)
		defer cancel()
		h := must(t)(c.Mutex("a").Lock(ctx))
		if took := time.Since(start); took > 4*time.Second {
			t.Errorf("Lock took %v", took)
		}
		unlock(t, h)
	})
}

// TestF106_EndOfATryEndsNoLock checks a store that answers for all names but
// one. A TryLock of that name ends within its bound, however often it is
// repeated. Its end does not end the Lock behind it, which goes on until its
// context ends.
func TestF106_EndOfATryEndsNoLock(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := hook(memlock.NewStore())
		c := client(t, d, holdfast.WithTTL(6*time.Second))
		d.join = func(ctx context.Context, tk *driver.Ticket, next joinFunc) (driver.Status, error) {
			if tk.Name != "a" {
				return next()
			}
			<-ctx.Done()
			return driver.Status{}, driver.Wrap(driver.Unknown, ctx.Err())
		}
		stop := make(chan struct{})
		stopped := make(chan struct{})
		go func() { // another client is answered all the time
			defer close(stopped)
			for {
				select {
				case <-time.After(5 * time.Millisecond):
					_, _ = c.Inspect(bg, "other")
				case <-stop:
					return
				}
			}
		}()
		defer func() { close(stop); <-stopped }()
		for range 6 {
			start := time.Now()
			if _, err := c.Mutex("a").TryLock(bg); err == nil {
				t.Fatal("TryLock holds what hangs")
			}
			if took := time.Since(start); took > 2500*time.Millisecond {
				t.Errorf("TryLock took %v", took)
			}
		}
		tried := make(chan struct{})
		go func() {
			defer close(tried)
			_, _ = c.Mutex("a").TryLock(bg)
		}()
		time.Sleep(time.Millisecond)
		ctx, cancel := context.WithTimeout(bg, 20*time.Second)
		defer cancel()
		_, err := c.Mutex("a").Lock(ctx)
		if w, ok := errors.AsType[*holdfast.WaitError](err); !ok || w.Waited < 20*time.Second {
			t.Errorf("Lock: %v, want the end of its context", err)
		}
		<-tried
	})
}

// TestF106_CancelledCallIsNoAnswer checks that a call that its caller ended,
// with a cause of the caller's own, proves nothing about the store: a dead
// store is still reported in time.
func TestF106_CancelledCallIsNoAnswer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := hook(memlock.NewStore())
		c := client(t, d, holdfast.WithTTL(3*time.Second))
		d.cut()
		stop := make(chan struct{})
		stopped := make(chan struct{})
		over, end := context.WithCancelCause(bg)
		end(errors.New("shutdown"))
		d.set(func(d *hooked) {
			silent := d.look
			d.look = func(ctx context.Context, next lookFunc) (driver.Queue, error) {
				if err := driver.Before(ctx); err != nil {
					return driver.Queue{}, err
				}
				return silent(ctx, next)
			}
			d.join = func(ctx context.Context, _ *driver.Ticket, _ joinFunc) (driver.Status, error) {
				<-ctx.Done()
				return driver.Status{}, driver.Wrap(driver.Unknown, ctx.Err())
			}
		})
		go func() {
			defer close(stopped)
			for {
				select {
				case <-time.After(50 * time.Millisecond):
					_, _ = c.Inspect(over, "b")
				case <-stop:
					return
				}
			}
		}()
		defer func() { close(stop); <-stopped }()
		ctx, cancel := context.WithTimeout(bg, 30*time.Second)
		defer cancel()
		start := time.Now()
		_, err := c.Mutex("a").Lock(ctx)
		if _, ok := errors.AsType[*holdfast.StoreError](err); !ok || time.Since(start) > 5*time.Second {
			t.Errorf("Lock: %v after %v", err, time.Since(start))
		}
	})
}
