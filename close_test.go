package holdfast_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/memlock"
)

func TestF54_Close(t *testing.T) {
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
		go func() { _, err := c.Mutex("a").Lock(h.Context()); errs <- err }() // waits for nested
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
		c = client(t, d, holdfast.WithObserver(&holdfast.Observer{Lost: func(err *holdfast.LostError) {
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
		}}))
		kept := must(t)(c.Mutex("kept").Lock(bg))
		for range 3 {
			h = must(t)(c.Mutex("a").Lock(bg))
			l, _ := c.Inspect(bg, "a")
			if err := c.Break(bg, "a", l.Tickets[0].ID); err != nil {
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

// An Observer that panics on the way into or out of a hold changes nothing.
func TestF55_ObserverPanics(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memlock.NewStore()
		a := client(t, memlock.New(s))
		b := client(t, memlock.New(s), holdfast.WithObserver(&holdfast.Observer{
			Waiting:  func(string, holdfast.Holder) { panic("waiting") },
			Acquired: func(string, uint64, time.Duration) { panic("acquired") },
			Released: func(string, uint64, time.Duration, error) { panic("released") },
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
