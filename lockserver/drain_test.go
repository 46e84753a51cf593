package lockserver

import (
	"context"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/memlock"
)

// TestDrainWaitsForWhatTimersRelease lets the last hold of a server that drains end by its
// timer, which is stopped just after it has noted the end, and the store take a while for the
// release: Drain returns after that.
func TestDrainWaitsForWhatTimersRelease(t *testing.T) {
	for _, sent := range []bool{false, true} {
		bubble(t, func(w *world) {
			d := &tardy{Driver: memlock.New(w.store)}
			s, direct := w.serverWith(w.clientOf(d), Options{}), w.client()
			d.leave.Store(int64(100 * time.Millisecond))
			first, err := direct.Mutex("a", holdfast.WithTTL(9*time.Second)).Lock(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			if sent {
				st := w.open(s, request("GET", "/v1/events?client="+clientOf(id(1)), "", ""))
				defer st.close()
			}
			w.want("wait", w.acquire(s, 1, "a", "wait_ms", "0"), 202, "state", "waiting")
			time.Sleep(4 * time.Second) // its place is renewed, so that the claim outlasts the client
			_ = first.Unlock()
			settle()
			drained := make(chan struct{})
			s.table.mu.Lock()
			stop := s.table.holds[s.table.keyOf(LocalName, id(1))].unwatch
			s.table.holds[s.table.keyOf(LocalName, id(1))].unwatch = func() bool {
				select {
				case <-drained:
				case <-time.After(time.Second):
				}
				return stop()
			}
			s.table.mu.Unlock()
			if err := s.Drain(context.Background()); err != nil {
				t.Error(err)
			}
			holders, _ := w.tickets(direct, "a")
			close(drained)
			if holders != 0 {
				t.Errorf("the grant was sent: %v: Drain has returned, and the store has %d holders", sent, holders)
			}
			time.Sleep(time.Minute)
		})
	}
}
