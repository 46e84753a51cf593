package holdfast_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memlock"
)

// unanswered is a driver whose Joins take effect and have no answer, while that is on.
type unanswered struct {
	*memlock.Driver
	on    atomic.Bool
	joins atomic.Int32
}

func (d *unanswered) Join(ctx context.Context, t *driver.Ticket, wait bool) (driver.Status, error) {
	d.joins.Add(1)
	st, err := d.Driver.Join(ctx, t, wait)
	if err == nil && d.on.Load() {
		return driver.Status{}, driver.Errorf(driver.Unknown, "connection reset")
	}
	return st, err
}

// TestPushEndsThePauseBeforeAJoin lets the Joins of a waiter have no answer, so that it
// pauses before each repetition. The push of its grant ends the pause, once: while there is
// no answer after that, the pauses go on.
func TestPushEndsThePauseBeforeAJoin(t *testing.T) {
	for after := time.Second; after < 4*time.Second; after += 300 * time.Millisecond {
		for _, answered := range []bool{true, false} {
			synctest.Test(t, func(t *testing.T) {
				store, ctx := memlock.NewStore(), context.Background()
				d := &unanswered{Driver: memlock.New(store)}
				first, err := holdfast.New(memlock.New(store))
				if err != nil {
					t.Fatal(err)
				}
				defer first.Close()
				second, err := holdfast.New(d)
				if err != nil {
					t.Fatal(err)
				}
				defer second.Close()
				h, err := first.Mutex("n").Lock(ctx)
				if err != nil {
					t.Fatal(err)
				}
				got := make(chan time.Time, 1)
				d.on.Store(true)
				go func() {
					h, err := second.Mutex("n").Lock(ctx)
					if err != nil {
						t.Error(err)
						return
					}
					got <- time.Now()
					_ = h.Unlock()
				}()
				time.Sleep(after)
				free, before := time.Now(), d.joins.Load()
				d.on.Store(!answered)
				if err := h.Unlock(); err != nil {
					t.Fatal(err)
				}
				if answered {
					if late := (<-got).Sub(free); late != 0 {
						t.Errorf("%v: the waiter holds %v after its grant", after, late)
					}
					return
				}
				time.Sleep(100 * time.Millisecond)
				if n := d.joins.Load() - before; n < 1 || n > 2 {
					t.Errorf("%v: %d Joins in 100 ms after the push, want one, and perhaps one that was due", after, n)
				}
				d.on.Store(false)
				<-got
			})
		}
	}
}
