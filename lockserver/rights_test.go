package lockserver

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/memlock"
)

// TestRevokedPrincipalsStreamsEnd checks that a principal without rights is neither shown
// locks nor told of them by a stream that it has opened before, and that the hold of its
// connection runs out.
func TestRevokedPrincipalsStreamsEnd(t *testing.T) {
	for what, later := range map[string]func(*http.Request) (Principal, error){
		"rights": func(*http.Request) (Principal, error) { return Principal{Name: LocalName}, nil },
		"token":  func(*http.Request) (Principal, error) { return Principal{}, errors.New("no such token") },
	} {
		bubble(t, func(w *world) {
			var revoked atomic.Bool
			s := w.serverWith(w.client(), Options{Auth: &Auth{Identify: func(r *http.Request) (Principal, error) {
				if revoked.Load() {
					return later(r)
				}
				return localPrincipal, nil
			}}})
			hold := w.openHold(s, 1, "a", "max_hold_ms", "3600000")
			watch := w.open(s, request("GET", "/v1/watch", "", ""))
			events := w.open(s, request("GET", "/v1/events?client="+clientOf(id(1)), "", ""))
			time.Sleep(15 * time.Second)
			revoked.Store(true)
			begun := time.Now()
			locked := w.lockAfter("a")
			select {
			case at := <-locked:
				if at.Sub(begun) > 13*time.Second {
					t.Errorf("%s: the next one waited %v", what, at.Sub(begun))
				}
			case <-time.After(time.Minute):
				t.Errorf("%s: the hold goes on", what)
			}
			time.Sleep(2 * beatInterval)
			synctest.Wait()
			shown := 0
			for _, e := range watch.events() {
				if e.text("event") == "lock" || e.text("event") == "free" {
					shown++
				}
			}
			if shown != 1 {
				t.Errorf("%s: the watch shows %d changes, want the one before", what, shown)
			}
			if got := names(events.events()); what == "token" && got != "flowing beat" {
				t.Errorf("%s: events %s", what, got)
			}
			hold.events()
		})
	}
}

// TestWaitersAreBoundedForEachPrefix checks that a grant's bound counts the waits for
// names with its prefix, and no others.
func TestWaitersAreBoundedForEachPrefix(t *testing.T) {
	bubble(t, func(w *world) {
		lock := []Right{RightLock}
		s := w.serverWith(w.client(), Options{Auth: byHeader(
			Principal{Name: "p", Grants: []Grant{{Prefix: "a/", May: lock, Waiters: 1}, {Prefix: "b/", May: lock, Waiters: 3}}},
		)})
		p := as(s, "p")
		w.acquire(p, 1, "a/x")
		w.acquire(p, 2, "b/x")
		for n := 3; n < 6; n++ {
			w.want("wait for b/x", w.acquire(p, n, "b/x", "wait_ms", "0"), 202, "state", "waiting")
		}
		w.want("one too many for b/", w.acquire(p, 6, "b/x", "wait_ms", "0"), 429, "code", "too_many")
		w.want("wait for a/x", w.acquire(p, 7, "a/x", "wait_ms", "0"), 202, "state", "waiting")
		w.want("one too many for a/", w.acquire(p, 8, "a/x", "wait_ms", "0"), 429, "code", "too_many")
		for n, name := range []string{1: "a/x", 2: "b/x", 3: "b/x", 4: "b/x", 5: "b/x", 7: "a/x"} {
			if name != "" {
				w.release(p, n, name)
			}
		}
		if len(s.quota.uses) != 0 {
			t.Errorf("%v", s.quota.uses["p"])
		}
	})
}

// TestDrainReleasesNoHoldOfAConnection checks that a server that ends does not release
// the hold of a connection that it closes itself, whatever the client has asked for: its
// work goes on until the lease ends.
func TestDrainReleasesNoHoldOfAConnection(t *testing.T) {
	bubble(t, func(w *world) {
		s, c := w.server(), w.client()
		st := w.openHold(s, 1, "a", "on_close", "release")
		time.Sleep(5 * time.Second)
		ctx, cancel := context.WithTimeout(bg, time.Second)
		defer cancel()
		_ = s.Drain(ctx)
		settle()
		if holders, _ := w.tickets(c, "a"); holders != 1 {
			t.Errorf("%d tickets hold while the client works", holders)
		}
		if got := names(st.events()); got[max(0, len(got)-8):] != "draining" {
			t.Error(got)
		}
	})
}

// TestHoldOfAConnectionIsRenewedAgainSoon checks that a renewal without an answer is
// repeated at the next beat.
func TestHoldOfAConnectionIsRenewedAgainSoon(t *testing.T) {
	bubble(t, func(w *world) {
		d := &silent{Driver: memlock.New(w.store)}
		s := w.serverWith(w.clientOf(d), Options{})
		st := w.openHold(s, 1, "a")
		time.Sleep(2 * time.Second)
		d.set(true)
		time.Sleep(5 * time.Second)
		d.set(false)
		time.Sleep(10 * time.Second)
		events := st.events()
		if last := events[len(events)-1]; last.text("event") != "held" {
			t.Errorf("the hold is %s", last.raw)
		}
		w.release(s, 1, "a")
	})
}

// TestLeftCountsASuspend checks that the rest of a claim is no longer than the client
// library knows it to be: the monotonic clock stands still while the machine is
// suspended. A suspend of 4 s makes the noted end 4 s too late.
func TestLeftCountsASuspend(t *testing.T) {
	bubble(t, func(w *world) {
		s := w.server()
		left := w.acquire(s, 1, "a").number("left_ms")
		s.table.mu.Lock()
		for _, h := range s.table.holds {
			h.until = h.until.Add(4 * time.Second)
		}
		s.table.mu.Unlock()
		if got := w.acquire(s, 1, "a").number("left_ms"); got > left {
			t.Errorf("%d ms are left of %d", got, left)
		}
		w.release(s, 1, "a")
	})
}

// TestFieldsOfAPostAreInItsBody checks that a field in the URL is refused: it would have
// no effect, and logs would keep it.
func TestFieldsOfAPostAreInItsBody(t *testing.T) {
	bubble(t, func(w *world) {
		s := w.server()
		w.want("a try", w.post(s, "/v1/acquire?try=true", "id", id(1), "name", "a", "ttl_ms", "9000"), 400, "code", "unknown_field")
	})
}
