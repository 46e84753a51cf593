package lockserver

import (
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/memlock"
)

// TestResumeWhereTheOnlyTicketWaits resumes a hold at a server where its id waits, after the
// server that told of the grant by an event gave its own ticket up: the client has asked
// the other one for a TTL. The ticket of that wait is the only one that holds.
func TestResumeWhereTheOnlyTicketWaits(t *testing.T) {
	bubble(t, func(w *world) {
		d := &lossy{Driver: memlock.New(w.store)}
		a, b, c := w.server(), w.serverWith(w.clientOf(d), Options{}), w.client()
		st := w.open(a, request("GET", "/v1/events?client="+clientOf(id(2)), "", ""))
		w.acquire(a, 1, "a")
		w.want("wait", w.acquire(a, 2, "a", "wait_ms", "0"), 202, "state", "waiting")
		time.Sleep(time.Second)
		w.want("wait", w.acquire(b, 2, "a", "wait_ms", "0"), 202, "state", "waiting")
		for range 2 {
			time.Sleep(3 * time.Second)
			w.renew(a, 1)
			w.want("renew", w.renew(b, 2), 200, "state", "waiting")
		}
		time.Sleep(time.Second)
		d.lost.Store(true)
		w.release(a, 1, "a")
		settle()
		d.lost.Store(false) // the push was lost, and nothing else
		time.Sleep(1200 * time.Millisecond)
		if holders, waiters := w.tickets(c, "a"); holders != 1 || waiters != 0 {
			t.Fatalf("%d tickets hold, %d wait; want that of the second server alone", holders, waiters)
		}
		events := st.events()
		told := events[len(events)-1]
		w.want("the event", told, 200, "event", "held")
		w.want("renew where the grant is not known", w.renew(b, 2), 200, "state", "waiting")
		w.want("resume", w.acquire(b, 2, "a", "wait_ms", "0", "resume", told.text("token")), 200, "state", "held", "token", told.text("token"), "left_ms", "8890")
		for range 5 {
			time.Sleep(3 * time.Second)
			w.want("renew", w.renew(b, 2), 200, "state", "held", "token", told.text("token"))
		}
		w.want("release", w.release(b, 2, "a"), 200, "result", "released")
		if holders, waiters := w.tickets(c, "a"); holders+waiters != 0 {
			t.Errorf("%d tickets are left", holders+waiters)
		}
	})
}
