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

// TestSilentWatch checks that a subscription without an answer delays neither a
// Lock nor Close for longer than a moment.
func TestSilentWatch(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := &deaf{Driver: memlock.New(memlock.NewStore())}
		c := client(t, d)
		for i := range 3 {
			start := time.Now()
			unlock(t, must(t)(c.Mutex("a").Lock(bg)))
			if got := time.Since(start); i == 0 && got > time.Second || i > 0 && got > 0 {
				t.Errorf("Lock %d took %v", i, got)
			}
			time.Sleep(time.Hour)
		}
		start := time.Now()
		if err := c.Close(); err != nil || time.Since(start) > 0 {
			t.Errorf("Close: %v after %v", err, time.Since(start))
		}
		if n := d.watches.Load(); n < 2*3600/16*3/2 || n > 2*3600/14*3/2 {
			t.Errorf("%d attempts in three hours", n)
		}
	})
}

type deaf struct {
	driver.Driver
	watches atomic.Int32
}

func (d *deaf) Watch(ctx context.Context, _ func(string, driver.Status)) error {
	d.watches.Add(1)
	<-ctx.Done()
	return ctx.Err()
}

// TestF36_GapDuringARenewal covers F36. A gap in the pushes occurs while the
// renewal of a waiting ticket is in flight. The reply may be older than the
// gap, so the test checks that the ticket is renewed again.
func TestF36_GapDuringARenewal(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memlock.NewStore()
		d := hook(s)
		c, o := client(t, d), client(t, memlock.New(s))
		var moved func(string, driver.Status)
		d.push = func(_ string, _ driver.Status, next func(string, driver.Status)) { moved = next } // lost
		h := must(t)(o.Mutex("a").Lock(bg))
		got := make(chan time.Time)
		go func() {
			h := must(t)(c.Mutex("a").Lock(bg))
			at := time.Now()
			unlock(t, h) // before the test ends, which closes c
			got <- at
		}()
		synctest.Wait()
		answered := make(chan struct{})
		d.set(func(d *hooked) {
			d.renew = func(_ context.Context, _ []driver.Ref, next batchFunc) ([]driver.Status, error) {
				ps, err := next()
				<-answered
				return ps, err
			}
		})
		time.Sleep(ttl/3 + time.Second) // the reply in flight says that the ticket waits
		unlock(t, h)
		moved("", driver.Status{})
		start := time.Now()
		close(answered)
		if waited := (<-got).Sub(start); waited != 0 {
			t.Errorf("waited %v after the gap", waited)
		}
	})
}

// unheard is a driver whose Watch fails, or hangs, until it is mended.
type unheard struct {
	*hooked
	hangs  bool
	mended atomic.Bool
	tries  atomic.Int32
}

func (d *unheard) Watch(ctx context.Context, moved func(string, driver.Status)) error {
	d.tries.Add(1)
	switch {
	case d.mended.Load():
		return d.hooked.Watch(ctx, moved)
	case d.hangs:
		<-ctx.Done()
		return ctx.Err()
	}
	return driver.Errorf(driver.Unavailable, "no connection for pushes")
}

// TestF124_LockWithoutPushes checks that without pushes free locks succeed,
// that waits go on by renewals at a modest pace, that the outage is reported
// once, and that pushes return by themselves.
func TestF124_LockWithoutPushes(t *testing.T) {
	for _, hangs := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			s := memlock.NewStore()
			d := &unheard{hooked: hook(s), hangs: hangs}
			var trouble atomic.Int32
			c, other := client(t, d, holdfast.WithObserver(onBackgroundError(func(error) { trouble.Add(1) }))), client(t, memlock.New(s))
			for i := range 3 {
				start := time.Now()
				unlock(t, must(t)(c.Mutex("free").Lock(bg)))
				if took := time.Since(start); took > 300*time.Millisecond || i > 0 && took > 0 {
					t.Errorf("hangs=%v: free Lock %d took %v", hangs, i, took)
				}
			}
			for _, long := range []time.Duration{100 * time.Millisecond, time.Minute} {
				h := must(t)(other.Mutex("a").Lock(bg))
				done := locking(bg, c.Mutex("a"))
				before := d.sentRenews()
				time.Sleep(long)
				if n := d.sentRenews() - before; n > 3+int(long/(900*time.Millisecond))+12 {
					t.Errorf("hangs=%v: asked %d times in %v", hangs, n, long)
				}
				unlock(t, h)
				start := time.Now()
				if err := <-done; err != nil {
					t.Error(err)
				}
				if took := time.Since(start); took > max(long/4, 50*time.Millisecond) || took > time.Second {
					t.Errorf("hangs=%v: after a wait of %v, the turn was seen %v late", hangs, long, took)
				}
			}
			if n := trouble.Load(); n != 1 {
				t.Errorf("hangs=%v: told %d times", hangs, n)
			}
			if n := d.tries.Load(); n < 3 || n > 20 {
				t.Errorf("hangs=%v: %d attempts in a minute", hangs, n)
			}
			h := must(t)(other.Mutex("a").Lock(bg))
			done := locking(bg, c.Mutex("a"))
			d.mended.Store(true)
			time.Sleep(20 * time.Second)
			stillWaiting(t, done)
			before := d.sentRenews()
			unlock(t, h)
			synctest.Wait()
			select {
			case err := <-done:
				if err != nil || d.sentRenews() != before {
					t.Errorf("hangs=%v: %v, by %d requests", hangs, err, d.sentRenews()-before)
				}
			default:
				t.Errorf("hangs=%v: pushes do not flow again", hangs)
			}
		})
	}
}

// TestF124_LateWatchIsAGap checks that a grant between the Join and the success
// of a late Watch is found by a renewal.
func TestF124_LateWatchIsAGap(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memlock.NewStore()
		d := &unheard{hooked: hook(s), hangs: true}
		c, other := client(t, d), client(t, memlock.New(s))
		h := must(t)(other.Mutex("a").Lock(bg))
		done := locking(bg, c.Mutex("a"))
		time.Sleep(4999 * time.Millisecond)
		d.mended.Store(true)
		unlock(t, h)
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
