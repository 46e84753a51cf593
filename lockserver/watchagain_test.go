package lockserver

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/memlock"
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

// TestWatchEndsWithTheStore watches while the store falls silent: the stream ends, and
// another one is refused, so that a page does not show for live what the server has last
// seen.
func TestWatchEndsWithTheStore(t *testing.T) {
	bubble(t, func(w *world) {
		d := &mute{Driver: memlock.New(w.store)}
		s := w.serverWith(w.clientOf(d), Options{})
		w.post(s, "/v1/acquire", "id", id(1), "name", "a", "ttl_ms", "600000")
		ended := make(chan *openStream, 2)
		for range 2 {
			st := w.open(s, request("GET", "/v1/watch", "", ""))
			defer st.close()
			go func() { st.ended.Wait(); ended <- st }()
		}
		time.Sleep(5 * time.Second)
		d.on.Store(true)
		for range 2 {
			select {
			case st := <-ended:
				if got := names(st.events()); !strings.HasPrefix(got, "flowing lock bookmark") {
					t.Error(got)
				}
			case <-time.After(maxWait + 2*scanInterval):
				t.Error("the stream goes on")
			}
		}
		w.want("while the store is silent", w.get(s, "/v1/watch"), 503, "code", "store_unknown")
		d.on.Store(false)
		st := w.open(s, request("GET", "/v1/watch", "", ""))
		settle()
		if got := names(st.events()); got != "flowing lock bookmark" {
			t.Error(got)
		}
		w.release(s, 1, "a")
	})
}
