package lockserver

import (
	"fmt"
	"net/url"
	"testing"
	"time"
)

// TestWatchThatComesBackMissesNothing watches many locks, goes away, and comes back with its
// mark when nobody watches any more: the server has not seen what has changed meanwhile, and
// says so.
func TestWatchThatComesBackMissesNothing(t *testing.T) {
	bubble(t, func(w *world) {
		s := w.server()
		const n = 300 // changes in the first look, which takes less than as many milliseconds
		for i := range n {
			w.acquire(s, i, fmt.Sprintf("lock%03d", i))
		}
		st := w.open(s, request("GET", "/v1/watch", "", ""))
		settle()
		events := st.events()
		mark := events[len(events)-1].text("after")
		if last := events[len(events)-1]; len(events) < n || last.text("event") != "bookmark" {
			t.Fatalf("%d events, the last %s", len(events), last.raw)
		}
		w.release(s, 7, "lock007")
		time.Sleep(50 * time.Millisecond)
		again := w.open(s, request("GET", "/v1/watch?after="+url.QueryEscape(mark), "", ""))
		settle()
		if events := again.events(); again.out.Code != 410 {
			t.Errorf("%d, and %d events, the first %s", again.out.Code, len(events), events[1].raw)
		}
	})
}
