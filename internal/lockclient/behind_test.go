package lockclient

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
)

// TestPermitBehindAnotherIsNotLate lets two clients wait for a permit at one server, which
// asks its store for one of them at a time. When the permits are free, both hold at once,
// however long they have waited.
func TestPermitBehindAnotherIsNotLate(t *testing.T) {
	for after := 200 * time.Millisecond; after < 12*time.Second; after += 700 * time.Millisecond {
		bubble(t, func(w *world) {
			acquire := func(c *holdfast.Client, n int) *holdfast.Hold {
				h, err := c.Semaphore("s", 3, holdfast.WithTTL(9*time.Second)).Acquire(context.Background(), n)
				if err != nil {
					t.Error(err)
				}
				return h
			}
			all := acquire(w.client(), 3)
			got := make(chan time.Time, 2)
			for range 2 {
				go func() {
					h := acquire(w.client(), 1)
					got <- time.Now()
					_ = h.Unlock()
				}()
				synctest.Wait()
			}
			time.Sleep(after)
			free := time.Now()
			if err := all.Unlock(); err != nil {
				t.Error(err)
			}
			for i := range 2 {
				if late := (<-got).Sub(free); late > 0 {
					t.Errorf("%v: waiter %d holds %v after the release", after, i+1, late)
				}
			}
		})
	}
}
