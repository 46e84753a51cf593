package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memlock"
)

type valueKey string

// path returns the values that Observers put into ctx, one after the other.
func path(ctx context.Context) string {
	s, _ := ctx.Value(valueKey("path")).(string)
	return s
}

func step(ctx context.Context, s string) context.Context {
	return context.WithValue(ctx, valueKey("path"), path(ctx)+s)
}

// steps returns an Observer that adds its name to the contexts, and notes where
// they came from.
func steps(name string, seen *[]string) *holdfast.Observer {
	var mu sync.Mutex
	note := func(ctx context.Context, event string) {
		mu.Lock()
		defer mu.Unlock()
		*seen = append(*seen, event+path(ctx))
	}
	return &holdfast.Observer{
		LockStart: func(ctx context.Context, _ holdfast.LockStartInfo) context.Context {
			note(ctx, "start")
			return step(ctx, "/s"+name)
		},
		LockWait: func(ctx context.Context, _ holdfast.LockWaitInfo) { note(ctx, "wait") },
		LockDone: func(ctx context.Context, _ holdfast.LockDoneInfo) context.Context {
			note(ctx, "done")
			return step(ctx, "/d"+name)
		},
		HoldDone: func(ctx context.Context, _ holdfast.HoldDoneInfo) { note(ctx, "over") },
	}
}

// TestObserverContexts checks the way of the contexts' values through several
// Observers, in the order of their options, to the hold and to the work.
func TestObserverContexts(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memlock.NewStore()
		var seen []string
		empty := &holdfast.Observer{}
		c := client(t, memlock.New(s), holdfast.WithObserver(steps("1", &seen)), holdfast.WithObserver(empty), holdfast.WithObserver(steps("2", &seen)))
		empty.LockStart = func(context.Context, holdfast.LockStartInfo) context.Context {
			t.Error("the Observer was not copied")
			return nil
		}
		h := must(t)(client(t, memlock.New(s)).Mutex("a").Lock(bg))
		time.AfterFunc(time.Second, func() { unlock(t, h) })
		const values = "/caller/s1/s2/d1/d2"
		err := c.Do(step(bg, "/caller"), "a", func(ctx context.Context) error {
			if got := path(ctx); got != values {
				t.Errorf("the work has %s", got)
			}
			return c.Do(ctx, "a", func(ctx context.Context) error { // nested
				if got := path(ctx); got != values || holdfast.Token(ctx, "a") == 0 {
					t.Errorf("the nested work has %s", got)
				}
				return nil
			})
		})
		if err != nil {
			t.Error(err)
		}
		want := []string{"start/caller", "start/caller/s1", "wait/caller/s1/s2", "wait/caller/s1/s2",
			"done/caller/s1/s2", "done/caller/s1/s2/d1", "over" + values, "over" + values}
		if !slices.Equal(seen, want) {
			t.Errorf("%q", seen)
		}
		h = must(t)(c.Mutex("a").Lock(step(bg, "/caller")))
		if got := path(h.Context()); got != values {
			t.Errorf("the hold has %s", got)
		}
		unlock(t, h)
		err = c.Multi([]string{"a", "b"}).Do(step(bg, "/caller"), func(ctx context.Context) error {
			if got, want := path(ctx), values+"/s1/s2/d1/d2"; got != want || holdfast.Token(ctx, "a") == 0 || holdfast.Token(ctx, "b") == 0 {
				t.Errorf("the work of a Multi has %s", got)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})
}

// TestObserverContextsThatAreNil checks that nil stands for the context given:
// LockStart's values reach LockDone and the hold, the caller's reach all.
func TestObserverContextsThatAreNil(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var seen []string
		o := steps("1", &seen)
		o.LockDone = func(ctx context.Context, _ holdfast.LockDoneInfo) context.Context {
			seen = append(seen, "done"+path(ctx))
			return nil
		}
		none := &holdfast.Observer{
			LockStart: func(context.Context, holdfast.LockStartInfo) context.Context { return nil },
			LockDone:  func(context.Context, holdfast.LockDoneInfo) context.Context { panic("no context") },
		}
		c := client(t, memlock.New(memlock.NewStore()), holdfast.WithObserver(none), holdfast.WithObserver(o), holdfast.WithObserver(none))
		err := c.Do(step(bg, "/caller"), "a", func(ctx context.Context) error {
			if got := path(ctx); got != "/caller/s1" {
				t.Errorf("the work has %s", got)
			}
			return nil
		})
		if want := []string{"start/caller", "done/caller/s1", "over/caller/s1"}; err != nil || !slices.Equal(seen, want) {
			t.Errorf("%q, %v", seen, err)
		}
	})
}

// TestObserverContextsDoNotEndWork checks that only the values of an Observer's
// contexts count: the wait and the work end with the caller's context, and its
// cause, whatever becomes of the Observer's.
func TestObserverContextsDoNotEndWork(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memlock.NewStore()
		over := func(ctx context.Context) context.Context {
			ctx, cancel := context.WithCancelCause(step(ctx, "/over"))
			cancel(errors.New("of the Observer"))
			return ctx
		}
		c := client(t, memlock.New(s), holdfast.WithObserver(&holdfast.Observer{
			LockStart: func(ctx context.Context, _ holdfast.LockStartInfo) context.Context { return over(ctx) },
			LockDone:  func(ctx context.Context, _ holdfast.LockDoneInfo) context.Context { return over(ctx) },
		}))
		h := must(t)(client(t, memlock.New(s)).Mutex("a").Lock(bg))
		time.AfterFunc(time.Second, func() { unlock(t, h) })
		mine := errors.New("of the caller")
		ctx, cancel := context.WithCancelCause(bg)
		time.AfterFunc(time.Minute, func() { cancel(mine) })
		start := time.Now()
		err := c.Do(ctx, "a", func(ctx context.Context) error {
			if path(ctx) != "/over/over" || ctx.Err() != nil {
				t.Errorf("%s, %v", path(ctx), ctx.Err())
			}
			<-ctx.Done()
			return context.Cause(ctx)
		})
		if took := time.Since(start); took != time.Minute || !errors.Is(err, mine) {
			t.Errorf("ended after %v: %v", took, err)
		}
	})
}

// TestObserverOfBothKindsOfWaits checks that a call that waits for its store and
// then for its turn is told of both, once each.
func TestObserverOfBothKindsOfWaits(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memlock.NewStore()
		d := hook(s)
		r, c := observed(t, d)
		h := must(t)(client(t, memlock.New(s), holdfast.WithNote("the other")).Mutex("a").Lock(bg))
		start := time.Now()
		d.join = func(_ context.Context, _ *driver.Ticket, next joinFunc) (driver.Status, error) {
			if time.Since(start) < 5*time.Second {
				return driver.Status{}, driver.NotReady(time.Second, "not now")
			}
			return next()
		}
		time.AfterFunc(10*time.Second, func() { unlock(t, h) })
		mine := must(t)(c.Mutex("a").Lock(bg))
		lines, _ := r.take()
		if len(lines) != 4 || lines[1] != `wait a mutex 1 behind "", store: acquire` || lines[2] != `wait a mutex 1 behind "the other", <nil>` ||
			!strings.Contains(lines[3], "contended=true local=false, <nil>") {
			t.Errorf("%q", lines)
		}
		unlock(t, mine)
	})
}

// TestObserverWithoutFields checks that Contended and Local are right though no
// Observer has a LockWait, and that Waited is the time of the call.
func TestObserverWithoutFields(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var dones []string
		c := client(t, memlock.New(memlock.NewStore()), holdfast.WithObserver(&holdfast.Observer{
			LockDone: func(_ context.Context, e holdfast.LockDoneInfo) context.Context {
				dones = append(dones, fmt.Sprint(e.Waited, e.Contended, e.Local))
				return nil
			},
		}))
		h := must(t)(c.Mutex("a").Lock(bg))
		time.AfterFunc(5*time.Millisecond, func() { unlock(t, h) })
		unlock(t, must(t)(c.Mutex("a").Lock(bg)))
		synctest.Wait()
		if want := []string{"0s false false", "5ms true true"}; !slices.Equal(dones, want) {
			t.Errorf("%q", dones)
		}
	})
}
