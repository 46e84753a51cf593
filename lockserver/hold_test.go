package lockserver

import (
	"testing"
	"time"
)

// TestHoldFromAcquireToRelease checks the answers of an uncontended hold, and that its
// repeated requests have one effect.
func TestHoldFromAcquireToRelease(t *testing.T) {
	bubble(t, func(w *world) {
		s, c := w.server(), w.client()
		first := w.acquire(s, 1, "a", "note", "close of May", "host", "app-3", "pid", "4711")
		w.want("acquire", first, 200, "state", "held", "resumable", "true", "server", s.Name(), "left_ms", "8890")
		if first.number("token") == 0 || len(first.text("group")) != 8 {
			t.Error(first.raw)
		}
		w.want("the same again", w.acquire(s, 1, "a"), 200, "state", "held", "token", first.text("token"))
		if h, n := w.tickets(c, "a"); h != 1 || n != 0 {
			t.Errorf("%d holders, %d waiters", h, n)
		}
		time.Sleep(5 * time.Second)
		w.want("renew", w.renew(s, 1), 200, "state", "held", "token", first.text("token"), "left_ms", "8890")
		w.want("try of another", w.acquire(s, 2, "a", "try", "true"), 409, "code", "held")
		w.want("release", w.release(s, 1, "a"), 200, "result", "released")
		w.want("release again", w.release(s, 1, "a"), 200, "result", "released")
		w.want("acquire after its release", w.acquire(s, 1, "a"), 410, "code", "released")
		w.want("renew after its release", w.renew(s, 1), 200, "status", "410", "code", "released")
		if h, n := w.tickets(c, "a"); h != 0 || n != 0 {
			t.Errorf("%d holders, %d waiters", h, n)
		}
	})
}

// TestWaitsAndTakesItsTurn checks that a poll answers waiting with the holder and the
// place, and held at the turn of the id.
func TestWaitsAndTakesItsTurn(t *testing.T) {
	bubble(t, func(w *world) {
		s := w.server()
		w.acquire(s, 1, "a", "note", "close of May", "host", "app-3", "pid", "4711")
		asked := time.Now()
		second := w.acquire(s, 2, "a", "wait_ms", "2000")
		w.want("poll", second, 202, "state", "waiting", "ahead", "1", "left_ms", "8890")
		if took := time.Since(asked); took != 2*time.Second {
			t.Errorf("the poll took %v", took)
		}
		by, _ := second.body["holder"].(map[string]any)
		if by["principal"] != LocalName || by["host"] != "app-3" || by["note"] != "close of May" {
			t.Errorf("holder %v", by)
		}
		time.AfterFunc(3*time.Second, func() { w.release(s, 1, "a") })
		asked = time.Now()
		w.want("next poll", w.acquire(s, 2, "a"), 200, "state", "held")
		if took := time.Since(asked); took != 3*time.Second {
			t.Errorf("the turn came after %v", took)
		}
		w.release(s, 2, "a")
	})
}

// TestDeadClientLosesItsHold checks that a server renews nothing by itself: the lock of
// a client that no longer asks ends with its TTL.
func TestDeadClientLosesItsHold(t *testing.T) {
	bubble(t, func(w *world) {
		s := w.server()
		w.acquire(s, 1, "a")
		asked := time.Now()
		w.want("the next one", w.acquire(s, 2, "a"), 200, "state", "held")
		if took := time.Since(asked); took > 9*time.Second+450*time.Millisecond {
			t.Errorf("it waited %v", took)
		}
		w.want("renewal of the lost hold", w.renew(s, 1), 200, "status", "410", "code", "lost")
		w.release(s, 2, "a")
	})
}
