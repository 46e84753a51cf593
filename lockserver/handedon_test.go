package lockserver

import (
	"context"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
)

// TestHandedOnGrantLastsAsLongAsItsPlace hands a permit on to an id that was told how long
// its place is kept. The permit's ticket was renewed before that: its claim is extended
// before the client learns of the grant, which moves no claim.
func TestHandedOnGrantLastsAsLongAsItsPlace(t *testing.T) {
	permit := []string{"kind", "permits", "of", "3"}
	bubble(t, func(w *world) {
		s, c := w.server(), w.client()
		st := w.open(s, request("GET", "/v1/events?client="+clientOf(id(2)), "", ""))
		all := w.permits(c, "a", 3)
		w.want("wait", w.acquire(s, 1, "a", append(permit, "wait_ms", "0")...), 202, "state", "waiting")
		time.Sleep(2900 * time.Millisecond)
		go w.acquire(s, 2, "a", append(permit, "wait_ms", "100")...) // behind the first: it has no place
		settle()
		if err := all[0].Unlock(); err != nil {
			t.Fatal(err)
		}
		settle()
		begun := time.Now()
		told := w.acquire(s, 2, "a", append(permit, "wait_ms", "0")...)
		w.want("its place", told, 202, "state", "waiting", "left_ms", "8889")
		w.want("release", w.release(s, 1, "a"), 200, "result", "released")
		settle()
		events := st.events()
		w.want("the event", events[len(events)-1], 200, "event", "held")
		s.table.mu.Lock()
		until := s.table.holds[s.table.keyOf(LocalName, id(2))].until
		s.table.mu.Unlock()
		if believed := begun.Add(time.Duration(told.number("left_ms")) * time.Millisecond); until.Before(believed) {
			t.Errorf("the client believes in the grant for %v longer than the server", believed.Sub(until))
		}
		w.want("release", w.release(s, 2, "a"), 200, "result", "released")
		for _, h := range all[1:] {
			_ = h.Unlock()
		}
	})
}

// permits takes permits of a semaphore one by one.
func (w *world) permits(c *holdfast.Client, name string, n int) []*holdfast.Hold {
	w.Helper()
	all := make([]*holdfast.Hold, n)
	for i := range all {
		h, err := c.Semaphore(name, n, holdfast.WithTTL(9*time.Second)).Acquire(context.Background(), 1)
		if err != nil {
			w.Fatalf("permit: %v", err)
		}
		all[i] = h
	}
	return all
}
