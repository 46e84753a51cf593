package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
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

// TestWaitedIsTheTimeSinceTheCall checks that WaitError.Waited is the time since the call
// began, whatever part of it the end of the wait meets: the read of a slot, a later name
// of a Multi, a lock behind a nested one, a store that is asked for a semaphore's size.
func TestWaitedIsTheTimeSinceTheCall(t *testing.T) {
	const end = 4 * time.Second // within what Lock allows a silent store
	silent := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	silentRead := func(ctx context.Context, _ func() (driver.Mark, error)) (driver.Mark, error) {
		return driver.Mark{}, silent(ctx)
	}
	work := func(context.Context) error { return errors.New("the function was run") }
	type world struct {
		*testing.T
		c, other *holdfast.Client
		h        *hooked
		opts     []holdfast.Option // bound the wait
	}
	hold := func(w *world, m *holdfast.Mutex, lasts time.Duration) {
		h := must(w)(m.Lock(bg))
		time.AfterFunc(lasts, func() { _ = h.Unlock() })
	}
	for name, call := range map[string]func(w *world, ctx context.Context) error{
		"Lock": func(w *world, ctx context.Context) error {
			hold(w, w.other.Mutex("a"), time.Minute)
			_, err := w.c.Mutex("a", w.opts...).Lock(ctx)
			return err
		},
		"Lock on a silent store": func(w *world, ctx context.Context) error {
			w.h.cut()
			_, err := w.c.Mutex("a", w.opts...).Lock(ctx)
			return err
		},
		"Lock behind a nested one": func(w *world, ctx context.Context) error {
			outer := must(w)(w.c.Mutex("a").Lock(context.WithValue(bg, tKey{}, "before the call")))
			inner := must(w)(w.c.Mutex("a").Lock(outer.Context()))
			defer outer.Unlock()
			defer inner.Unlock()
			work, cancel := context.WithCancelCause(outer.Context())
			defer context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })()
			_, err := w.c.Mutex("a", w.opts...).Lock(work)
			return err
		},
		"RLock": func(w *world, ctx context.Context) error {
			h := must(w)(w.other.RWMutex("a").Lock(bg))
			defer h.Unlock()
			_, err := w.c.RWMutex("a", w.opts...).RLock(ctx)
			return err
		},
		"Acquire": func(w *world, ctx context.Context) error {
			h := must(w)(w.other.Semaphore("a", 3).Acquire(bg, 2))
			defer h.Unlock()
			_, err := w.c.Semaphore("a", 3, w.opts...).Acquire(ctx, 2)
			return err
		},
		"Acquire of another size": func(w *world, ctx context.Context) error {
			w.h.cut()
			_, err := w.c.Semaphore("a", 2, append(w.opts, holdfast.WithExistingSize())...).Acquire(ctx, 3)
			return err
		},
		"Multi.Lock": func(w *world, ctx context.Context) error {
			hold(w, w.other.Mutex("a"), 2*time.Second)
			hold(w, w.other.Mutex("b"), time.Minute)
			_, err := w.c.Multi([]string{"a", "b"}, w.opts...).Lock(ctx)
			return err
		},
		"Once behind another": func(w *world, ctx context.Context) error {
			hold(w, w.other.Mutex("job"), time.Minute)
			w.h.mark = func(_ context.Context, next func() (driver.Mark, error)) (driver.Mark, error) {
				time.Sleep(2 * time.Second)
				return next()
			}
			_, err := w.c.Once(ctx, "job", noon, work, w.opts...)
			return err
		},
		"Once that cannot read the slot": func(w *world, ctx context.Context) error {
			w.h.mark = silentRead
			_, err := w.c.Once(ctx, "job", noon, work, w.opts...)
			return err
		},
		"Once that cannot read the slot under the lock": func(w *world, ctx context.Context) error {
			w.h.mark = func(_ context.Context, next func() (driver.Mark, error)) (driver.Mark, error) {
				time.Sleep(time.Second)
				w.h.set(func(h *hooked) { h.mark = silentRead })
				return next()
			}
			_, err := w.c.Once(ctx, "job", noon, work, w.opts...)
			return err
		},
		"TryOnce": func(w *world, ctx context.Context) error {
			if len(w.opts) > 0 {
				return nil // it has no MaxWait
			}
			w.h.mark = silentRead
			_, err := w.c.TryOnce(ctx, "job", noon, work)
			return err
		},
	} {
		for _, observed := range []bool{false, true} {
			for _, maxWait := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, observed %v, MaxWait %v", name, observed, maxWait), func(t *testing.T) {
					bubble(t, func(t *testing.T) {
						s := memlock.NewStore()
						w := &world{T: t, h: hook(s), other: client(t, memlock.New(s))}
						var opts []holdfast.ClientOption
						var told time.Duration // to the Observer, in the error
						if observed {
							opts = append(opts, holdfast.WithObserver(&holdfast.Observer{
								LockStart: func(ctx context.Context, _ holdfast.LockStartInfo) context.Context {
									if ctx.Value(tKey{}) == nil {
										time.Sleep(time.Second)
									}
									return nil
								},
								LockDone: func(_ context.Context, e holdfast.LockDoneInfo) context.Context {
									if e, ok := errors.AsType[*holdfast.WaitError](e.Err); ok {
										told = e.Waited
									}
									return nil
								},
							}))
						}
						w.c = client(t, w.h, opts...)
						ctx := bg
						if maxWait {
							w.opts = []holdfast.Option{holdfast.WithMaxWait(end)}
						} else {
							var cancel context.CancelFunc
							ctx, cancel = context.WithTimeout(bg, end)
							defer cancel()
						}
						begun := time.Now()
						err := call(w, ctx)
						if err == nil && len(w.opts) > 0 {
							return
						}
						failed, ok := errors.AsType[*holdfast.WaitError](err)
						if took := time.Since(begun); !ok || failed.Waited < end || failed.Waited > took || !strings.Contains(err.Error(), "ended after ") {
							t.Errorf("after %v: %v", took, err)
						}
						if told != 0 && told != failed.Waited {
							t.Errorf("the Observer was told of %v, the caller of %v", told, failed.Waited)
						}
					})
				})
			}
		}
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
