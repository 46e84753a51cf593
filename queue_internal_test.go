package holdfast

import (
	"context"
	"testing"

	"github.com/holdfast-go/holdfast/memlock"
)

// TestLinesOfOneHash checks that queues whose keys have one hash are found, and
// forgotten, each for itself.
func TestLinesOfOneHash(t *testing.T) {
	c, err := New(memlock.New(memlock.NewStore()))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.queues.hash = func(queueKey) uint64 { return 1 }
	names := []string{"a", "b", "c", "d"}
	for _, order := range [][]int{{0, 1, 2, 3}, {3, 2, 1, 0}, {1, 2, 0, 3}} {
		var held [4]*Hold
		for i, name := range names {
			if held[i], err = c.Mutex(name).TryLock(context.Background()); err != nil {
				t.Fatal(err)
			}
		}
		for n, i := range order {
			if err := held[i].Unlock(); err != nil {
				t.Error(err)
			}
			for m, j := range order {
				q, _ := c.queues.get(held[j].queue.key)
				if known := q == held[j].queue; known != (m > n) {
					t.Errorf("after %d unlocks, is line %s known: %v", n+1, names[j], known)
				}
				c.queues.release(q)
				c.calls.Done()
			}
		}
		if left := Residue(c); left != "" {
			t.Error(left)
		}
	}
}
