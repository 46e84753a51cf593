package holdfast_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/memlock"
)

// TestF134_CloseWaitsForFunctions covers F134. It checks for each kind of lock
// that Close asks Do's function to stop, waits until it returns, and lets the
// next client in only then, while a bare hold ends at once.
func TestF134_CloseWaitsForFunctions(t *testing.T) {
	eachKind(t, func(t *testing.T, k, rival lockKind, c, other *holdfast.Client) {
		bare := must(t)(c.Mutex("bare").Lock(bg))
		var returned time.Time
		done := make(chan error, 1)
		go func() {
			done <- k.do(c, bg, func(ctx context.Context) error {
				<-ctx.Done()
				wantErr(t, context.Cause(ctx), holdfast.ErrShutdown)
				unlock(t, must(t)(other.Mutex("bare").Lock(bg))) // released at once
				time.Sleep(4 * time.Second)
				returned = time.Now()
				return nil
			})
		}()
		synctest.Wait()
		entered := enterAfter(t, rival, other)
		start := time.Now()
		if err := c.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		if took := time.Since(start); took < 4*time.Second || took > 5*time.Second {
			t.Errorf("Close took %v", took)
		}
		if err := <-done; err != nil {
			t.Errorf("Do: %v", err)
		}
		if at := entered(); at.Before(returned) {
			t.Errorf("the next client holds %v before the function has returned", returned.Sub(at))
		}
		wantErr(t, context.Cause(bare.Context()), holdfast.ErrClosed)
		wantErr(t, bare.Err(), holdfast.ErrClosed)
		wantErr(t, bare.Unlock(), holdfast.ErrClosed)
	})
}

// TestF134_CloseGivesUpOnFunctions covers F134. It checks for each kind of lock
// that Close does not wait longer than its bound for a function that ignores its
// context, does not release that lock, names it, and that the lock ends with its
// lease. Do's result has ErrClosed then.
func TestF134_CloseGivesUpOnFunctions(t *testing.T) {
	oops := errors.New("oops")
	for name, result := range map[string]error{"nil": nil, "error": oops} {
		t.Run(name, func(t *testing.T) {
			eachKind(t, func(t *testing.T, k, rival lockKind, c, other *holdfast.Client) {
				done := make(chan error, 1)
				go func() {
					done <- k.do(c, bg, func(context.Context) error { time.Sleep(3 * ttl); return result })
				}()
				synctest.Wait()
				l, err := other.Inspect(bg, "b")
				if err != nil {
					t.Fatal(err)
				}
				names := []string{"a", "b"}[:1+len(l.Holders)] // a Multi has both
				entered := enterAfter(t, rival, other)
				start := time.Now()
				err = c.Close()
				if took := time.Since(start); took != 5*time.Second {
					t.Errorf("Close took %v", took)
				}
				wantShutdownError(t, err, context.DeadlineExceeded, names...)
				again := c.Close()
				wantShutdownError(t, again, context.DeadlineExceeded, names...)
				wantShutdownError(t, c.Shutdown(bg), context.DeadlineExceeded, names...)
				if after := entered().Sub(start); after < ttl-time.Second || after > ttl+10*time.Second {
					t.Errorf("the next client held after %v, want the end of the lease", after)
				}
				err = <-done
				wantErr(t, err, holdfast.ErrClosed)
				if result != nil {
					wantErr(t, err, oops)
					wantErr(t, err, holdfast.ErrShutdown)
				}
			})
		})
	}
}

// TestF134_CloseOfShortLeases covers F134. It checks that the bound of Close is a
// third of the TTL, and at least 100 ms.
func TestF134_CloseOfShortLeases(t *testing.T) {
	for ttl, want := range map[time.Duration]time.Duration{
		6 * time.Second: 2 * time.Second, 200 * time.Millisecond: 100 * time.Millisecond, time.Hour: 5 * time.Second,
	} {
		bubble(t, func(t *testing.T) {
			c := client(t, memlock.New(memlock.NewStore()), holdfast.WithTTL(ttl))
			go func() { _ = c.Do(bg, "a", func(context.Context) error { time.Sleep(time.Hour); return nil }) }()
			synctest.Wait()
			start := time.Now()
			wantShutdownError(t, c.Close(), context.DeadlineExceeded, "a")
			if took := time.Since(start); took != want {
				t.Errorf("TTL %v: Close took %v, want %v", ttl, took, want)
			}
			time.Sleep(time.Hour)
		})
	}
}

// TestF134_CloseAndNestedFunctions covers F134. It checks that a bare hold in
// which a function runs ends when that function returns, and that a bare hold
// nested in a function's hold lasts as long as that hold.
func TestF134_CloseAndNestedFunctions(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memlock.NewStore()
		c, other := client(t, memlock.New(s)), client(t, memlock.New(s))
		outer := must(t)(c.Mutex("a").Lock(bg)) // never unlocked
		done := make(chan error, 2)
		go func() {
			done <- c.Do(outer.Context(), "a", func(ctx context.Context) error {
				<-ctx.Done()
				time.Sleep(time.Second)
				wantErr(t, outer.Err(), nil)
				return nil
			})
		}()
		go func() {
			done <- c.Do(bg, "b", func(ctx context.Context) error {
				in := must(t)(c.Mutex("b").Lock(ctx))
				<-ctx.Done()
				time.Sleep(2 * time.Second)
				wantErr(t, in.Err(), nil)
				unlock(t, in)
				return nil
			})
		}()
		synctest.Wait()
		enteredA, enteredB := enterAfter(t, lockKinds["Mutex"], other), make(chan time.Time, 1)
		go func() {
			h := must(t)(other.Mutex("b").Lock(bg))
			enteredB <- time.Now()
			unlock(t, h)
		}()
		synctest.Wait()
		start := time.Now()
		if err := c.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		for range 2 {
			if err := <-done; err != nil {
				t.Errorf("Do: %v", err)
			}
		}
		if a, b := enteredA().Sub(start), (<-enteredB).Sub(start); a != time.Second || b != 2*time.Second {
			t.Errorf("a was released after %v and b after %v, want 1 s and 2 s", a, b)
		}
		wantErr(t, outer.Err(), holdfast.ErrClosed)
		wantErr(t, outer.Unlock(), holdfast.ErrClosed)
	})
}

// TestF134_CloseWithSharedTicket covers F134. It checks that of readers that
// share one ticket the bare ones end at once, and that the ticket stays until the
// function of RDo has returned.
func TestF134_CloseWithSharedTicket(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memlock.NewStore()
		c, other := client(t, memlock.New(s)), client(t, memlock.New(s))
		r1 := must(t)(c.RWMutex("a").RLock(bg))
		done := make(chan error, 1)
		go func() {
			done <- c.RWMutex("a").RDo(bg, func(ctx context.Context) error {
				<-ctx.Done()
				time.Sleep(time.Second)
				wantErr(t, r1.Err(), holdfast.ErrClosed)
				return nil
			})
		}()
		synctest.Wait()
		r2 := must(t)(c.RWMutex("a").RLock(bg))
		if n := tickets(t, other, "a"); n != 1 {
			t.Fatalf("%d tickets: the readers share none", n)
		}
		entered := enterAfter(t, lockKinds["writer"], other)
		start := time.Now()
		wantErr(t, c.Close(), nil)
		wantErr(t, <-done, nil)
		if after := entered().Sub(start); after != time.Second {
			t.Errorf("the writer held after %v, want 1 s", after)
		}
		wantErr(t, r1.Unlock(), holdfast.ErrClosed)
		wantErr(t, r2.Unlock(), holdfast.ErrClosed)
	})
}

// TestF134_CloseBesideShutdown covers F134. It checks that Close ends a Shutdown
// that waits: bare holds end, functions are waited for, and both return the same.
func TestF134_CloseBesideShutdown(t *testing.T) {
	for _, ignores := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			c := client(t, memlock.New(memlock.NewStore()))
			bare := must(t)(c.Mutex("bare").Lock(bg))
			work := 3 * time.Second
			if ignores {
				work = time.Hour
			}
			asked := bare.Context()
			done := make(chan error, 1)
			go func() {
				done <- c.Do(bg, "a", func(ctx context.Context) error { <-ctx.Done(); time.Sleep(time.Minute + work); return nil })
			}()
			synctest.Wait()
			results := make(chan error, 4)
			for range 2 {
				go func() { results <- c.Shutdown(bg) }()
			}
			time.Sleep(time.Minute)
			wantErr(t, bare.Err(), nil)
			start := time.Now()
			for range 2 {
				go func() { results <- c.Close() }()
			}
			synctest.Wait()
			wantErr(t, bare.Err(), holdfast.ErrClosed)
			wantErr(t, context.Cause(asked), holdfast.ErrShutdown)
			for range 4 {
				if err := <-results; ignores {
					wantShutdownError(t, err, context.DeadlineExceeded, "a")
				} else {
					wantErr(t, err, nil)
				}
			}
			if took := time.Since(start); took != min(work, 5*time.Second) {
				t.Errorf("Close took %v", took)
			}
			if err := <-done; ignores != errors.Is(err, holdfast.ErrClosed) {
				t.Errorf("Do: %v", err)
			}
		})
	}
}

// TestF134_CallbacksDuringClose covers F134. It checks that callbacks of the
// Observer may unlock holds and call Close or Shutdown, that a Do whose function
// has not begun then does not run it, and that a function that calls Close itself
// gets its answer at the bound.
func TestF134_CallbacksDuringClose(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for name, end := range map[string]func(*holdfast.Client) error{
			"Shutdown": func(c *holdfast.Client) error {
				ended, cancel := context.WithCancel(bg)
				cancel()
				return c.Shutdown(ended)
			},
			"Close": (*holdfast.Client).Close,
		} {
			var c *holdfast.Client
			o := &holdfast.Observer{LockDone: func(ctx context.Context, _ holdfast.LockDoneInfo) context.Context {
				_ = end(c)
				return ctx
			}}
			c = client(t, memlock.New(memlock.NewStore()), holdfast.WithObserver(o))
			err := c.Do(bg, "a", func(context.Context) error { t.Errorf("%s: the function runs", name); return nil })
			wantErr(t, err, holdfast.ErrClosed)
			wantErr(t, c.Close(), nil)

			// HoldDone runs in Unlock; the lock is released by then.
			o = &holdfast.Observer{HoldDone: func(context.Context, holdfast.HoldDoneInfo) { wantErr(t, end(c), nil) }}
			c = client(t, memlock.New(memlock.NewStore()), holdfast.WithObserver(o))
			wantErr(t, c.Do(bg, "a", func(context.Context) error { return nil }), nil)

			// A loss that is reported during Shutdown, and an Unlock from there.
			var h *holdfast.Hold
			o = onLoss(func(*holdfast.LostError) { wantErr(t, h.Unlock(), holdfast.ErrLost); wantErr(t, end(c), nil) })
			c = client(t, memlock.New(memlock.NewStore()), holdfast.WithObserver(o))
			h = must(t)(c.Mutex("a").Lock(bg))
			l, _ := c.Inspect(bg, "a")
			go func() { time.Sleep(time.Second); wantErr(t, c.Break(bg, "a", l.Holders[0].ID), nil) }()
			wantErr(t, c.Shutdown(bg), nil)
			synctest.Wait()
		}
		c := client(t, memlock.New(memlock.NewStore()))
		wantErr(t, c.Do(bg, "a", func(context.Context) error {
			wantShutdownError(t, c.Close(), context.DeadlineExceeded, "a")
			return nil
		}), holdfast.ErrClosed)
	})
}

// TestF134_ContextsThatUnlock covers F134. It checks that functions that run when
// a hold's context ends may unlock that hold.
func TestF134_ContextsThatUnlock(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for _, closes := range []bool{false, true} {
			c := client(t, memlock.New(memlock.NewStore()))
			for _, name := range []string{"a", "b", "c"} {
				h := must(t)(c.Mutex(name).Lock(bg))
				context.AfterFunc(h.Context(), func() { _ = h.Unlock() })
			}
			if closes {
				wantErr(t, c.Close(), nil)
			} else {
				wantErr(t, c.Shutdown(bg), nil)
			}
		}
	})
}

// TestF134_ShutdownRaces covers F134. It runs Do, Lock, Unlock, MaxHold, Shutdown
// and Close at once, in real time, for the race detector, and checks exclusion
// until the end of each function.
func TestF134_ShutdownRaces(t *testing.T) {
	for range 100 {
		s := memlock.NewStore()
		var inside sync.Mutex
		var all sync.WaitGroup
		for range 2 {
			c := client(t, memlock.New(s))
			for range 4 {
				all.Go(func() {
					for {
						err := c.Do(bg, "a", func(context.Context) error {
							if !inside.TryLock() {
								t.Error("two functions run at once")
								return nil
							}
							time.Sleep(time.Duration(rand.IntN(50)) * time.Microsecond)
							inside.Unlock()
							return nil
						}, holdfast.WithMaxHold(time.Duration(rand.IntN(200))*time.Microsecond))
						if errors.Is(err, holdfast.ErrClosed) {
							return
						}
					}
				})
				all.Go(func() {
					h, err := c.RWMutex("rw").RLock(bg)
					if err != nil {
						return
					}
					time.Sleep(time.Duration(rand.IntN(300)) * time.Microsecond)
					_ = h.Unlock()
				})
			}
			for _, end := range []func() error{c.Close, func() error { return c.Shutdown(bg) }, func() error { return c.Shutdown(bg) }} {
				all.Go(func() {
					time.Sleep(time.Duration(rand.IntN(500)) * time.Microsecond)
					if err := end(); err != nil {
						t.Errorf("end: %v", err)
					}
				})
			}
		}
		all.Wait()
	}
}
