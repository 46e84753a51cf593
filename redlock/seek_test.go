package redlock

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// TestF42_MajorityLost restarts a majority without its data. It checks that the
// hold is reported lost, and that the next one has a greater token.
//
// Covers: F26.
func TestF42_MajorityLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(3)
		c, _ := w.client(t, ttl)
		h, err := c.Mutex("n").Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		w.nodes[0].restart(ttl)
		w.nodes[1].restart(ttl)
		select {
		case <-h.Context().Done():
		case <-time.After(ttl):
			t.Error("the loss is not told within a TTL")
		}
		other, _ := w.client(t, ttl)
		ctx, cancel := context.WithTimeout(t.Context(), 4*ttl)
		defer cancel()
		for {
			next, err := other.Mutex("n").Lock(ctx)
			if err == nil {
				if next.Token() <= h.Token() {
					t.Errorf("token %d after %d", next.Token(), h.Token())
				}
				return
			}
			if ctx.Err() != nil {
				t.Fatal(err)
			}
		}
	})
}

// TestWaiterOutlivesItsHome checks a waiter whose home fails.
func TestWaiterOutlivesItsHome(t *testing.T) {
	for _, how := range []string{"silent", "dead"} {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(3)
				a, d := w.client(t, ttl)
				b, _ := w.client(t, ttl)
				h, err := a.Mutex("n").Lock(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				got := make(chan error, 1)
				go func() {
					next, err := b.Mutex("n").Lock(t.Context())
					if err == nil && next.Token() <= h.Token() {
						err = fmt.Errorf("token %d after %d", next.Token(), h.Token())
					}
					got <- err
				}()
				time.Sleep(time.Second)
				home := w.nodes[d.nodes.homes("n")[0]]
				if how == "dead" {
					home.dead.Store(true)
				} else {
					home.Shut()
				}
				time.Sleep(time.Second)
				begun := time.Now()
				if err := h.Unlock(); err != nil {
					t.Errorf("Unlock: %v", err)
				}
				if err := <-got; err != nil {
					t.Error(err)
				}
				if took := time.Since(begun); took > ttl/2 {
					t.Errorf("the next one waited %v", took)
				}
				home.Open()
				home.dead.Store(false)
			})
		})
	}
}
