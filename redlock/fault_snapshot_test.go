package redlock

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
)

// TestF119_NodeOlderThanTheOthers restores one node of three from a copy that
// lacks the present hold, that has an earlier hold instead, or that has a hold
// which was released since. The hold goes on and keeps others out, the next
// holder has it within a TTL, and tokens grow.
func TestF119_NodeOlderThanTheOthers(t *testing.T) {
	for at := range 3 {
		for _, copied := range []string{"free", "held by another", "held and then free"} {
			t.Run(fmt.Sprintf("node %d, %s", at+1, copied), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(3)
					a, _ := w.client(t, ttl)
					b, _ := w.client(t, ttl)
					lock := func(c *holdfast.Client) *holdfast.Hold {
						t.Helper()
						h, err := c.Mutex("n").Lock(t.Context())
						if err != nil {
							t.Fatal(err)
						}
						synctest.Wait() // all nodes have answered
						return h
					}
					unlock := func(h *holdfast.Hold) {
						t.Helper()
						if err := h.Unlock(); err != nil {
							t.Fatal(err)
						}
						synctest.Wait()
					}
					var last uint64
					var restore func()
					if copied == "free" {
						restore = w.nodes[at].Snapshot()
					} else {
						h := lock(b)
						restore = w.nodes[at].Snapshot()
						last = h.Token()
						unlock(h)
					}
					if copied != "held and then free" {
						h := lock(a)
						restore()
						for range 3 {
							if _, err := b.Mutex("n").TryLock(t.Context()); !errors.Is(err, holdfast.ErrHeld) {
								t.Fatalf("another client is answered %v beside a hold", err)
							}
							time.Sleep(ttl)
						}
						if err := h.Err(); err != nil || h.Token() <= last {
							t.Errorf("the hold: %v; token %d after %d", err, h.Token(), last)
						}
						last = h.Token()
						unlock(h)
					} else {
						restore()
					}
					begun := time.Now()
					h := lock(a)
					if waited := time.Since(begun); waited > ttl+ttl/20 || h.Token() <= last {
						t.Errorf("the next holder waited %v, token %d after %d", waited, h.Token(), last)
					}
					unlock(h)
				})
			})
		}
	}
}
