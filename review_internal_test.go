package holdfast

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/memlock"
)

// F16: the context of a Multi looks at the clock as that of a hold does.
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

// What was nested in a hold and is unlocked is forgotten by it.
func TestNestedHoldsAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := New(memlock.New(memlock.NewStore()))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		m := c.Mutex("a")
		err = m.Do(context.Background(), func(ctx context.Context) error {
			for range 100 {
				if err := m.Do(ctx, func(context.Context) error { return nil }); err != nil {
					return err
				}
			}
			for _, l := range c.lines {
				if n := len(l.last.users.first.inside.holds); n != 0 {
					t.Errorf("the hold still knows of %d nested ones", n)
				}
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		if len(c.lines) != 0 || len(c.keeper.byID) != 0 {
			t.Errorf("%d lines and %d tickets stay", len(c.lines), len(c.keeper.byID))
		}
	})
}

// F52: a hand-over looks at the claim even if nobody has noticed its end yet,
// because the process stood still between the look of Unlock and this one.
func TestF52_HandOverOfAnEndedClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := New(memlock.New(memlock.NewStore()))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		h, err := c.Mutex("a").Lock(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error)
		go func() {
			next, err := c.Mutex("a").Lock(context.Background())
			if err == nil {
				err = next.Unlock()
			}
			done <- err
		}()
		synctest.Wait()
		h.t.claim.Store(int64(c.clock.now()))
		l := h.line
		l.mu.Lock()
		left := l.drop(h)
		l.mu.Unlock()
		if left != h.t {
			t.Fatal("a hold whose claim was over was handed on")
		}
		c.cleaner.add(left)
		h.end(ErrReleased)
		c.releaseLine(l)
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// Residue says what a client at rest still remembers; nothing is as it should
// be.
func Residue(c *Client) string {
	c.mu.Lock()
	lines := len(c.lines)
	c.mu.Unlock()
	c.keeper.mu.Lock()
	tickets, ends := len(c.keeper.byID), len(c.keeper.ends)
	c.keeper.mu.Unlock()
	c.cleaner.mu.Lock()
	lanes := len(c.cleaner.lanes)
	c.cleaner.mu.Unlock()
	if lines+tickets+ends+lanes == 0 {
		return ""
	}
	return fmt.Sprintf("%d lines, %d tickets, %d ends of claims, %d lanes to clean", lines, tickets, ends, lanes)
}
