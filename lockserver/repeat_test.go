package lockserver

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/memlock"
)

// TestRepeatedReleaseOfAPinnedHoldAsksTheStore repeats a release that the store has not
// answered: as long as the store has the ticket, nobody is told that it is released.
func TestRepeatedReleaseOfAPinnedHoldAsksTheStore(t *testing.T) {
	bubble(t, func(w *world) {
		d := &slowLeave{memlock.New(w.store), time.Hour}
		s, c := w.serverWith(w.clientOf(d), Options{}), w.client()
		w.want("the hold", w.acquire(s, 1, "a", "pinned", "true"), 200, "state", "held")
		info, err := c.Inspect(bg, "a")
		if err != nil || len(info.Holders) != 1 {
			t.Fatal(info, err)
		}
		ticket := info.Holders[0].ID
		w.want("release of the hold", w.release(s, 1, "a"), 200, "result", "unknown")
		w.want("the same again", w.release(s, 1, "a"), 200, "result", "released")
		info, err = c.Inspect(bg, "a")
		if err != nil || slices.ContainsFunc(info.Holders, func(h holdfast.TicketInfo) bool { return h.ID == ticket }) {
			t.Errorf("the ticket is still there: %v, %v", info.Holders, err)
		}
		w.want("another's hold", w.acquire(w.server(), 9, "b"), 200, "state", "held")
		w.want("a place", w.acquire(s, 2, "b", "pinned", "true", "wait_ms", "0"), 202, "state", "waiting")
		w.want("its release", w.release(s, 2, "b"), 200, "result", "unknown")
		w.want("the same again", w.release(s, 2, "b"), 200, "result", "unknown")
		time.Sleep(20 * time.Second)
		s.table.mu.Lock()
		defer s.table.mu.Unlock()
		if len(s.table.releases) > 0 {
			t.Errorf("%d releases are remembered", len(s.table.releases))
		}
	})
}

// TestReleaseThatIsDoubledIsNotCalledGone sends a release twice at the same time, as a
// balancer may: no answer says that the hold had ended before.
func TestReleaseThatIsDoubledIsNotCalledGone(t *testing.T) {
	for _, moved := range []string{"false", "true"} {
		bubble(t, func(w *world) {
			s := w.serverWith(w.clientOf(&slowLeave{memlock.New(w.store), 200 * time.Millisecond}), Options{})
			w.want("the hold", w.acquire(s, 1, "a"), 200, "state", "held")
			first := make(chan reply)
			go func() { first <- w.release(s, 1, "a", "moved", moved) }()
			synctest.Wait()
			w.want("the second", w.release(s, 1, "a", "moved", moved), 200, "result", "released")
			w.want("the first", <-first, 200, "result", "released")
		})
	}
}
