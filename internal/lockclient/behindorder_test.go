package lockclient

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/memlock"
)

// TestWaitersBehindAnotherKeepTheirOrder lets clients wait for a permit at one server, which
// asks its store for one of them at a time. The others have no place at the store; they keep
// their order for longer than leases last.
func TestWaitersBehindAnotherKeepTheirOrder(t *testing.T) {
	bubble(t, func(w *world) {
		straight, err := holdfast.New(memlock.New(w.store))
		if err != nil {
			t.Fatal(err)
		}
		defer straight.Close()
		permit := func(c *holdfast.Client) *holdfast.Hold {
			h, err := c.Semaphore("s", 3, holdfast.WithTTL(9*time.Second)).Acquire(context.Background(), 1)
			if err != nil {
				t.Error(err)
			}
			return h
		}
		first := []*holdfast.Hold{permit(straight), permit(straight), permit(straight)}
		var order []int
		held := make(chan int)
		for i := range 4 {
			c := w.client()
			go func() {
				h := permit(c)
				held <- i
				time.Sleep(time.Minute)
				_ = h.Unlock()
			}()
			synctest.Wait()
			time.Sleep(4 * time.Second)
		}
		time.Sleep(20 * time.Second)
		for _, h := range first {
			if err := h.Unlock(); err != nil {
				t.Error(err)
			}
			order = append(order, <-held)
		}
		order = append(order, <-held)
		if !slices.IsSorted(order) {
			t.Errorf("the waiters hold in the order %v", order)
		}
		time.Sleep(2 * time.Minute)
	})
}
