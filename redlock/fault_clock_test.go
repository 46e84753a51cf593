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

// TestF45_OneClockOfThreeVotes sets the clock of one server beyond the lease.
// It checks that a holder with all votes keeps its majority, and that no other
// client holds beside it.
func TestF45_OneClockOfThreeVotes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for i := range 3 {
			w := newWorld(3)
			c, _ := w.client(t, ttl)
			other, _ := w.client(t, ttl)
			time.Sleep(ttl) // until the driver knows all nodes
			h, err := c.Mutex("n").Lock(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			synctest.Wait() // Lock returns with a majority; by now the third vote is in
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

// TestF45_OneClockOfTwoVotes checks the case that RedLock cannot exclude: a
// holder with two votes of three gets a second holder beside it when the clock
// of one of the two nodes jumps. The second holder's token is greater, so a
// guard refuses the first.
func TestF45_OneClockOfTwoVotes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(3)
		d := w.open(t)
		wireTo(d, 2).own.Shut() // keeps the third vote from the first client
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
		twoHold(t, h, next)
		wireTo(d, 2).own.Open()
	})
}

// twoHold checks that the holder of a lock believes to hold when another one is
// granted it, measures for how long, and checks that the token of the second is
// greater, so that a guard refuses the first. A counterexample of the
// specifications is measured so: docs/proof/counterexamples.md.
func twoHold(t *testing.T, first, second *holdfast.Hold) {
	t.Helper()
	if err := first.Err(); err != nil {
		t.Errorf("the first one does not hold any more: %v", err)
	}
	began := time.Now()
	<-first.Context().Done()
	t.Logf("two held for %v; then the first was told: %v", time.Since(began), context.Cause(first.Context()))
	if time.Since(began) <= 0 {
		t.Error("two never held at once")
	}
	if second.Token() <= first.Token() {
		t.Errorf("token %d after %d", second.Token(), first.Token())
	}
	var g fence.Guard
	if err := g.Check(fence.Token{Value: second.Token()}); err != nil {
		t.Error(err)
	}
	if err := g.Check(fence.Token{Value: first.Token()}); !errors.Is(err, fence.ErrStale) {
		t.Errorf("the first one's write: %v", err)
	}
}

// TestF42_GuardShorterThanALease checks the case that the restart guard cannot
// exclude: a node that comes back without its data votes again before the lease of
// a holder with two votes of three has ended, since its guard is shorter.
func TestF42_GuardShorterThanALease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(3)
		d := w.open(t)
		wireTo(d, 2).own.Shut()     // keeps the third vote from the first client
		c := clientOf(t, d, 10*ttl) // renews after a third of it
		other, _ := w.client(t, ttl)
		time.Sleep(ttl) // until the drivers know all nodes
		h, err := c.Mutex("n").Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		w.nodes[0].restart(ttl) // the longest lease that the node's guard knows of
		time.Sleep(ttl + time.Second)
		next, err := other.Mutex("n").Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		twoHold(t, h, next)
		wireTo(d, 2).own.Open()
	})
}

// TestF67_NoTokenLeft checks that where no token is left above the minimum
// token, the error says so, and nothing is granted.
func TestF67_NoTokenLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(3)
		d := w.open(t)
		defer d.Close()
		time.Sleep(ttl) // until the driver knows all nodes
		tk := &driver.Ticket{ID: "last", Name: "n", Limit: 1, Units: 1, TTL: ttl, MinToken: math.MaxUint64}
		if p, err := d.Join(t.Context(), tk, false); driver.ClassOf(err) != driver.Refused {
			t.Errorf("%+v, %v", p, err)
		}
		if l, err := d.Inspect(t.Context(), "n"); err != nil || len(l.Tickets) > 0 {
			t.Errorf("the line is %+v, %v", l, err)
		}
	})
}
