package lockserver

import (
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/memlock"
)

// TestAcquireWithoutTheStoreIsNotAnsweredWaiting asks a server that is cut off from its store
// for a lock: the answer is 503, so that the client asks the next server. Once the store
// answers, the same id has a place.
func TestAcquireWithoutTheStoreIsNotAnsweredWaiting(t *testing.T) {
	for _, pinned := range []string{"false", "true"} {
		bubble(t, func(w *world) {
			d := &cuttable{Driver: memlock.New(w.store)}
			s := w.serverWith(w.clientOf(d), Options{})
			w.want("the holder", w.acquire(w.server(), 9, "a"), 200, "state", "held")
			d.cut.Store(true)
			for _, wait := range []string{"0", "2000"} {
				began := time.Now()
				r := w.acquire(s, 1, "a", "pinned", pinned, "wait_ms", wait)
				w.want("without the store", r, 503, "code", "store_unknown")
				if took := time.Since(began); took > 2*time.Second {
					t.Errorf("wait_ms %s: %s after %v", wait, r.raw, took)
				}
			}
			d.cut.Store(false)
			time.Sleep(2 * time.Second)
			r := w.acquire(s, 1, "a", "pinned", pinned, "wait_ms", "0")
			if w.want("with the store", r, 202, "state", "waiting"); r.number("left_ms") < 5000 {
				t.Errorf("with the store: %s", r.raw)
			}
			w.release(s, 1, "a")
			settle()
		})
	}
}

// TestRequestWithoutAnAnswerLastsNoLongerThanAPoll asks a server whose store has fallen
// silent for places with the longest TTL: each request is answered within 30 s.
func TestRequestWithoutAnAnswerLastsNoLongerThanAPoll(t *testing.T) {
	bubble(t, func(w *world) {
		d := &cuttable{Driver: memlock.New(w.store)}
		s := w.serverWith(w.clientOf(d), Options{})
		form := []string{"name", "a", "ttl_ms", "600000", "wait_ms", "0", "id"}
		token := w.post(s, "/v1/acquire", append(form, id(1))...).text("token")
		d.cut.Store(true)
		ask := func(what string, more ...string) {
			began := time.Now()
			r := w.post(s, "/v1/acquire", append(form, more...)...)
			if took := time.Since(began); r.status != 503 || took > 30*time.Second {
				t.Errorf("%s: %s after %v", what, r.raw, took)
			}
		}
		ask("a resume", id(1), "resume", token)
		ask("another id", id(2))
		ask("a resume in a long silence", id(1), "resume", token)
		d.cut.Store(false)
		settle()
	})
}
