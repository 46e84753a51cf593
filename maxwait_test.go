package holdfast_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/memlock"
)

const maxWait = 7 * time.Second

// TestMaxWaitEndsTheWait calls everything that waits for a lock that another
// client holds: the wait ends at its MaxWait, to the instant.
func TestMaxWaitEndsTheWait(t *testing.T) {
	work := func(context.Context) error { return errors.New("the function was run") }
	bound := holdfast.WithMaxWait(maxWait)
	for name, call := range map[string]func(c *holdfast.Client) error{
		"Mutex.Lock":        func(c *holdfast.Client) error { _, err := c.Mutex("m", bound).Lock(bg); return err },
		"Mutex.Do":          func(c *holdfast.Client) error { return c.Mutex("m", bound).Do(bg, work) },
		"Client.Do":         func(c *holdfast.Client) error { return c.Do(bg, "m", work, bound) },
		"RWMutex.Lock":      func(c *holdfast.Client) error { _, err := c.RWMutex("w", bound).Lock(bg); return err },
		"RWMutex.RLock":     func(c *holdfast.Client) error { _, err := c.RWMutex("w", bound).RLock(bg); return err },
		"RWMutex.Do":        func(c *holdfast.Client) error { return c.RWMutex("w", bound).Do(bg, work) },
		"RWMutex.RDo":       func(c *holdfast.Client) error { return c.RWMutex("w", bound).RDo(bg, work) },
		"Semaphore.Acquire": func(c *holdfast.Client) error { _, err := c.Semaphore("s", 3, bound).Acquire(bg, 2); return err },
		"Semaphore.Do":      func(c *holdfast.Client) error { return c.Semaphore("s", 3, bound).Do(bg, 2, work) },
		"Multi.Lock":        func(c *holdfast.Client) error { _, err := c.Multi([]string{"a", "m"}, bound).Lock(bg); return err },
		"Multi.Do":          func(c *holdfast.Client) error { return c.Multi([]string{"a", "m"}, bound).Do(bg, work) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := memlock.NewStore()
				other, c := client(t, memlock.New(s), holdfast.WithNote("other")), client(t, memlock.New(s))
				holds := []*holdfast.Hold{
					must(t)(other.Mutex("m").Lock(bg)), must(t)(other.RWMutex("w").Lock(bg)), must(t)(other.Semaphore("s", 3).Acquire(bg, 2)),
				}
				begun := time.Now()
				err := call(c)
				wantMaxWait(t, err, begun)
				if w, _ := errors.AsType[*holdfast.WaitError](err); w != nil && (w.Waited != maxWait || w.Holder.Note != "other") {
					t.Errorf("%+v", w)
				}
				synctest.Wait()
				for _, name := range []string{"m", "w", "s"} {
					if n := tickets(t, other, name); n != 1 {
						t.Errorf("%d tickets of %s, want that of the holder", n, name)
					}
				}
				if n := tickets(t, other, "a"); n != 0 {
					t.Errorf("%d tickets of the free name stay", n)
				}
				for _, h := range holds {
					unlock(t, h)
				}
			})
		})
	}
}

// wantMaxWait checks the error of a wait that ended after maxWait.
func wantMaxWait(t *testing.T, err error, begun time.Time) {
	t.Helper()
	if waited := time.Since(begun); waited != maxWait {
		t.Errorf("the call took %v, want %v", waited, maxWait)
	}
	wantErr(t, err, holdfast.ErrMaxWait)
	wantErr(t, err, holdfast.ErrHeld)
	w, ok := errors.AsType[*holdfast.WaitError](err)
	if !ok || w.Cause != holdfast.ErrMaxWait || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%#v", err)
	}
}

// TestMaxWaitBoundsOneCallAsAWhole checks waits of several parts: of a Multi,
// whose names are taken one after the other, and behind a nested lock.
func TestMaxWaitBoundsOneCallAsAWhole(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memlock.NewStore()
		other, c := client(t, memlock.New(s)), client(t, memlock.New(s), holdfast.WithMaxWait(maxWait))
		a, b := must(t)(other.Mutex("a").Lock(bg)), must(t)(other.Mutex("b").Lock(bg))
		time.AfterFunc(maxWait-time.Second, func() { unlock(t, a) })
		begun := time.Now()
		_, err := c.Multi([]string{"a", "b"}).Lock(bg)
		wantMaxWait(t, err, begun)
		synctest.Wait()
		unlock(t, must(t)(other.Mutex("a").TryLock(bg)))
		unlock(t, b)

		outer := must(t)(c.Mutex("a").Lock(bg))
		inner := must(t)(c.Mutex("a").Lock(outer.Context()))
		begun = time.Now()
		_, err = c.Mutex("a").Lock(outer.Context())
		wantMaxWait(t, err, begun)
		unlock(t, inner)
		unlock(t, outer)
	})
}

// TestMaxWaitBoundsTheWaitOnly checks what the option leaves alone: the work, Try
// calls, a context that ends first, and a lock whose bound is 0.
func TestMaxWaitBoundsTheWaitOnly(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memlock.NewStore()
		other, c := client(t, memlock.New(s)), client(t, memlock.New(s), holdfast.WithMaxWait(maxWait))
		h := must(t)(other.Mutex("a").Lock(bg))
		time.AfterFunc(maxWait-1, func() { unlock(t, h) })
		err := c.Do(bg, "a", func(ctx context.Context) error {
			time.Sleep(10 * maxWait)
			if end, ok := ctx.Deadline(); ok || ctx.Err() != nil {
				t.Errorf("the work is bounded by %v: %v", end, ctx.Err())
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		h = must(t)(c.Mutex("a").Lock(bg))
		time.Sleep(2 * maxWait)
		if h.Err() != nil || h.Context().Err() != nil {
			t.Errorf("the hold is bounded: %v", h.Err())
		}
		unlock(t, h)

		h = must(t)(other.Mutex("a").Lock(bg))
		begun := time.Now()
		_, err = c.Mutex("a").TryLock(bg)
		if held, ok := errors.AsType[*holdfast.HeldError](err); !ok || time.Since(begun) != 0 {
			t.Errorf("%v, %v after %v", held, err, time.Since(begun))
		}
		ctx, cancel := context.WithTimeout(bg, maxWait-1)
		defer cancel()
		_, err = c.Mutex("a").Lock(ctx)
		wantErr(t, err, context.DeadlineExceeded)
		if errors.Is(err, holdfast.ErrHeld) || errors.Is(err, holdfast.ErrMaxWait) {
			t.Errorf("the context ended the wait: %v", err)
		}
		time.AfterFunc(100*maxWait, func() { unlock(t, h) })
		unlock(t, must(t)(c.Mutex("a", holdfast.WithMaxWait(0)).Lock(bg)))
	})
}

// TestMaxWaitOnASilentStore checks that the bound includes the wait for a store
// that does not answer, before and after the call has a place.
func TestMaxWaitOnASilentStore(t *testing.T) {
	for name, x := range map[string]struct{ silentAfter, bound time.Duration }{
		"no place": {0, time.Second}, // a Lock without a place gives a silent store up after 5 s
		"a place":  {maxWait / 2, maxWait},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := memlock.NewStore()
				hooks := hook(s)
				other, c := client(t, memlock.New(s)), client(t, hooks)
				h := must(t)(other.Mutex("a").Lock(bg))
				if x.silentAfter == 0 {
					hooks.cut()
				} else {
					time.AfterFunc(x.silentAfter, hooks.cut)
				}
				begun := time.Now()
				_, err := c.Mutex("a", holdfast.WithMaxWait(x.bound)).Lock(bg)
				wantErr(t, err, holdfast.ErrMaxWait)
				if waited := time.Since(begun); waited != x.bound {
					t.Errorf("waited %v, want %v", waited, x.bound)
				}
				hooks.heal()
				unlock(t, h)
			})
		})
	}
}

// TestErrorOfInnerWaitHasInnerName checks that a function of Do whose own wait
// ended is told apart from a wait of Do by the name in the error: Do returns the
// function's error as it is.
func TestErrorOfInnerWaitHasInnerName(t *testing.T) {
	for _, held := range []string{"outer", "inner"} {
		bubble(t, func(t *testing.T) {
			s := memlock.NewStore()
			other, c := client(t, memlock.New(s)), client(t, memlock.New(s))
			h := must(t)(other.Mutex(held).Lock(bg))
			bound := holdfast.WithMaxWait(maxWait)
			called := false
			err := c.Do(bg, "outer", func(ctx context.Context) error {
				called = true
				return c.Do(ctx, "inner", func(context.Context) error { return nil }, bound)
			}, bound)
			w, ok := errors.AsType[*holdfast.WaitError](err)
			if !ok || !errors.Is(err, holdfast.ErrHeld) || w.Name != held || called != (held == "inner") {
				t.Errorf("%s is held: %v; the function was called: %v", held, err, called)
			}
			unlock(t, h)
		})
	}
}
