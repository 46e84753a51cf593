package holdfast

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/memlock"
)

// TestF16_ClockNeverGoesBack checks that the clock counts the time slept to
// within a millisecond, and never goes back after it has counted it: a claim
// that has ended stays ended.
func TestF16_ClockNeverGoesBack(t *testing.T) {
	var slept atomic.Int64
	var c clock
	c.start(func() time.Duration { return time.Duration(slept.Load()) })
	look := func(asleep time.Duration) time.Duration {
		slept.Store(int64(asleep))
		c.offset.Add(-int64(2 * time.Millisecond)) // the wall clock seems to have drifted
		return c.now().sub(0) - time.Since(c.base)
	}
	for _, x := range []struct{ asleep, want time.Duration }{
		{4 * time.Millisecond, 4 * time.Millisecond},
		{6 * time.Millisecond, 6 * time.Millisecond},
		{2 * time.Millisecond, 6 * time.Millisecond}, // a late reading
		{6*time.Millisecond + 200*time.Microsecond, 6 * time.Millisecond},
		{time.Hour, time.Hour},
		{0, time.Hour},
	} {
		if got := look(x.asleep); got < x.want-time.Millisecond/2 || got > x.want+time.Millisecond/2 {
			t.Errorf("asleep for %v: %v counted, want %v", x.asleep, got, x.want)
		}
	}
}

// TestF16_ClockNeverGoesBackForAnybody checks that goroutines that read the
// clock together see it grow, whatever time slept each of them reads.
func TestF16_ClockNeverGoesBackForAnybody(t *testing.T) {
	var reads atomic.Int64
	var c clock
	c.start(func() time.Duration { // every other reading is an old one
		n := reads.Add(1)
		return time.Duration(n-n%2*5) * 3 * time.Millisecond
	})
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			last := instant(0)
			for range 2000 {
				c.offset.Add(-int64(2 * time.Millisecond))
				now := c.now()
				if now < last {
					t.Errorf("the clock went back by %v", last.sub(now))
					return
				}
				last = now
			}
		})
	}
	group.Wait()
}

// TestF16_MultiContextAfterSuspend covers F16. It checks that the context of a
// Multi compares clocks as the context of a hold does.
func TestF16_MultiContextAfterSuspend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var slept atomic.Int64
		c, err := newClient(memlock.New(memlock.NewStore()), func() time.Duration { return time.Duration(slept.Load()) })
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		mh, err := c.Multi([]string{"a", "b"}).Lock(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		ctx := mh.Context()
		slept.Store(int64(40 * time.Second))
		c.clock.offset.Add(-int64(40 * time.Second))
		if ctx.Err() == nil || !errors.Is(context.Cause(ctx), ErrLost) {
			t.Errorf("after a suspend past the lease: %v, cause %v", ctx.Err(), context.Cause(ctx))
		}
	})
}
