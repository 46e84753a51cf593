package holdfast

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/holdfast-go/holdfast/memlock"
)

// TestNestedHoldsAreForgotten checks that a hold forgets a nested hold after
// its Unlock.
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
			for _, q := range c.queues.byHash {
				if n := len(q.lastGranted.holds.first.nested.holds); n != 0 {
					t.Errorf("the hold still knows of %d nested ones", n)
				}
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		if len(c.queues.byHash) != 0 || len(c.renewer.byID) != 0 {
			t.Errorf("%d lines and %d tickets stay", len(c.queues.byHash), len(c.renewer.byID))
		}
	})
}

// TestF52_HandOverOfAnEndedClaim covers F52. It checks that a local hand-off
// compares clocks even if nothing has noticed the end of the claim yet, because
// the process stood still after the check in Unlock.
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
		h.ticket.claim.Store(int64(c.clock.now()))
		q := h.queue
		q.mu.Lock()
		left := q.dropHold(h)
		q.mu.Unlock()
		if left != h.ticket {
			t.Fatal("a hold whose claim was over was handed on")
		}
		c.cleaner.addHeld(left)
		h.root.end(ErrReleased)
		c.queues.release(q)
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// Residue describes the state that a client at rest still keeps; it is empty if
// the client is clean.
func Residue(c *Client) string {
	c.mu.Lock()
	lines := len(c.queues.byHash)
	c.mu.Unlock()
	c.renewer.mu.Lock()
	tickets, ends := len(c.renewer.byID), len(c.renewer.claimEnds)
	c.renewer.mu.Unlock()
	c.cleaner.mu.Lock()
	lanes := len(c.cleaner.lanes)
	c.cleaner.mu.Unlock()
	if lines+tickets+ends+lanes == 0 {
		return ""
	}
	return fmt.Sprintf("%d lines, %d tickets, %d ends of claims, %d lanes to clean", lines, tickets, ends, lanes)
}

// ReportBackground reports a background error to the Observers of c.
func ReportBackground(c *Client, err error) { c.report.background(BackgroundErrorInfo{Err: err}) }
