package redlock

import (
	"context"
	"errors"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/fence"
)

// The clock of one server jumps beyond the lease. A holder that has all votes
// keeps its majority, and nobody comes in beside it.
func TestF45_OneClockOfThreeVotes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for i := range 3 {
			w := newWorld(3)
			c, _ := w.client(t, ttl)
			other, _ := w.client(t, ttl)
			time.Sleep(ttl) // all nodes are known
			h, err := c.Mutex("n").Lock(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			synctest.Wait() // Lock returns with a majority; the third vote is in
			w.nodes[i].StepClock(10 * ttl)
			for range 20 {
				if next, err := other.Mutex("n").TryLock(t.Context()); !errors.Is(err, holdfast.ErrHeld) {
					t.Errorf("node %d, beside a holder with all votes: %v, %v", i, next != nil, err)
				}
				time.Sleep(ttl / 10)
			}
			if err := h.Err(); err != nil {
				t.Errorf("the holder: %v", err)
			}
			if err := h.Unlock(); err != nil {
				t.Error(err)
			}
		}
	})
}

// A holder with two votes of three can be doubled when the clock of one of them
// jumps: that is what RedLock cannot promise. The second one's token is greater,
// so a guard refuses the first.
func TestF45_OneClockOfTwoVotes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(3)
		d := w.open(t)
		wireTo(d, 2).own.shut() // the first client never gets the third vote
		c := clientOf(t, d, ttl)
		other, _ := w.client(t, ttl)
		h, err := c.Mutex("n").Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		w.nodes[0].StepClock(10 * ttl)
		ctx, cancel := context.WithTimeout(t.Context(), 4*ttl)
		defer cancel()
		next, err := other.Mutex("n").Lock(ctx)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("when the second one held, the first said %v", h.Err())
		if next.Token() <= h.Token() {
			t.Errorf("token %d after %d", next.Token(), h.Token())
		}
		var g fence.Guard
		if err := g.Check(fence.Token{Value: next.Token()}); err != nil {
			t.Error(err)
		}
		if err := g.Check(fence.Token{Value: h.Token()}); !errors.Is(err, fence.ErrStale) {
			t.Errorf("the first one's write: %v", err)
		}
		wireTo(d, 2).own.reopen()
	})
}

// No token is left above the floor that is asked for: that is said, and nothing
// is granted.
func TestF67_NoTokenLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(3)
		d := w.open(t)
		defer d.Close()
		time.Sleep(ttl) // all nodes are known
		tk := &driver.Ticket{ID: "last", Name: "n", Limit: 1, Units: 1, TTL: ttl, Floor: math.MaxUint64}
		if p, err := d.Join(t.Context(), tk, false); driver.ClassOf(err) != driver.Refused {
			t.Errorf("%+v, %v", p, err)
		}
		if l, err := d.Inspect(t.Context(), "n"); err != nil || len(l.Tickets) > 0 {
			t.Errorf("the line is %+v, %v", l, err)
		}
	})
}
