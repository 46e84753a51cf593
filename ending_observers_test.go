package holdfast_test

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memlock"
)

// TestHoldDoneThatEndsItsGoroutine checks that each hold is reported once, though
// HoldDone ends its goroutine: holds that share a ticket, and those of a Multi,
// end together.
func TestHoldDoneThatEndsItsGoroutine(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, c *holdfast.Client){
		"loss of readers": func(t *testing.T, c *holdfast.Client) {
			for range 3 {
				if _, err := c.RWMutex("a").RLock(bg); err != nil {
					t.Fatal(err)
				}
			}
			seen, err := c.Inspect(bg, "a")
			if err != nil || len(seen.Holders) != 1 {
				t.Fatal(seen, err)
			}
			wantErr(t, c.Break(bg, "a", seen.Holders[0].ID), nil)
		},
		"Unlock of a Multi": func(t *testing.T, c *holdfast.Client) {
			h, err := c.Multi([]string{"a", "b", "c"}).Lock(bg)
			if err != nil {
				t.Fatal(err)
			}
			go h.Unlock()
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var done atomic.Int32
				c, err := holdfast.New(memlock.New(memlock.NewStore()), holdfast.WithObserver(&holdfast.Observer{
					HoldDone: func(context.Context, holdfast.HoldDoneInfo) {
						done.Add(1)
						runtime.Goexit()
					},
				}))
				if err != nil {
					t.Fatal(err)
				}
				end(t, c)
				synctest.Wait()
				if n := done.Load(); n != 3 {
					t.Errorf("HoldDone came for %d of 3 holds", n)
				}
				wantErr(t, c.Close(), nil)
			})
		})
	}
}

// TestLeadHasTheObserversValues checks that the values of LockDone's context reach
// the function of Lead, as they reach that of Do.
func TestLeadHasTheObserversValues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type key struct{}
		c, err := holdfast.New(memlock.New(memlock.NewStore()), holdfast.WithObserver(&holdfast.Observer{
			LockDone: func(ctx context.Context, _ holdfast.LockDoneInfo) context.Context {
				return context.WithValue(ctx, key{}, "span")
			},
		}))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		fn := func(ctx context.Context) error {
			if got := ctx.Value(key{}); got != "span" {
				t.Errorf("the function has the value %v", got)
			}
			return nil
		}
		wantErr(t, c.Do(bg, "a", fn), nil)
		wantErr(t, c.Lead(bg, "a", fn), nil)
	})
}

// TestExistingSizeWhoseStoreIsSilent checks the errors of a call that has to ask
// for the semaphore's size first: of a wait that ended, and of a client that
// closes.
func TestExistingSizeWhoseStoreIsSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := hook(memlock.NewStore())
		d.look = func(ctx context.Context, _ lookFunc) (driver.Queue, error) {
			<-ctx.Done()
			return driver.Queue{}, driver.Errorf(driver.Unavailable, "silent")
		}
		c, err := holdfast.New(d)
		if err != nil {
			t.Fatal(err)
		}
		s := c.Semaphore("a", 2, holdfast.WithExistingSize(), holdfast.WithMaxWait(100*time.Millisecond))
		_, err = s.Acquire(bg, 3)
		w, ok := errors.AsType[*holdfast.WaitError](err)
		if !ok || w.Waited != 100*time.Millisecond {
			t.Errorf("%#v", err)
		}
		s = c.Semaphore("a", 2, holdfast.WithExistingSize())
		done := make(chan error, 1)
		go func() {
			_, err := s.Acquire(bg, 3)
			done <- err
		}()
		synctest.Wait()
		wantErr(t, c.Shutdown(bg), nil)
		synctest.Wait()
		begun := time.Now()
		wantErr(t, <-done, holdfast.ErrClosed)
		if took := time.Since(begun); took > 0 {
			t.Errorf("the call outlasted Shutdown by %v", took)
		}
		_, err = s.Acquire(bg, 3)
		wantErr(t, err, holdfast.ErrClosed)
	})
}
