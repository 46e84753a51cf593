package lockserver

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memlock"
)

// lossy is a way to a store that may lose pushes and renewals, as one whose connection was
// reset.
type lossy struct {
	*memlock.Driver
	lost atomic.Bool
}

func (d *lossy) Watch(ctx context.Context, notify func(string, driver.Status)) error {
	return d.Driver.Watch(ctx, func(id string, st driver.Status) {
		if !d.lost.Load() {
			notify(id, st)
		}
	})
}

// Renew fails while pushes are lost.
func (d *lossy) Renew(ctx context.Context, refs []driver.Ref) ([]driver.Status, error) {
	if d.lost.Load() {
		return nil, driver.Errorf(driver.Unavailable, "connection reset")
	}
	return d.Driver.Renew(ctx, refs)
}

// TestResumeAtAServerThatMissedTheGrant resumes a hold at a server where its id still
// waits: the store is asked, the hold goes on with its token, and the wait is given up. A
// token that the owner does not hold with is a loss there as everywhere.
func TestResumeAtAServerThatMissedTheGrant(t *testing.T) {
	for _, kind := range []string{"mutex", "read", "write"} {
		bubble(t, func(w *world) {
			d := &lossy{Driver: memlock.New(w.store)}
			a, b, c := w.server(), w.serverWith(w.clientOf(d), Options{}), w.client()
			before := "write"
			if kind == "mutex" {
				before = kind
			}
			w.acquire(a, 1, "a", "kind", before)
			for _, s := range []*Server{a, b} {
				w.want("wait", w.acquire(s, 2, "a", "kind", kind, "wait_ms", "0"), 202, "state", "waiting")
			}
			d.lost.Store(true)
			w.release(a, 1, "a")
			settle()
			held := w.acquire(a, 2, "a", "kind", kind)
			w.want("where the grant is known", held, 200, "state", "held")
			w.want("renew where it is not", w.renew(b, 2), 200, "state", "waiting")
			w.want("resume", w.acquire(b, 2, "a", "kind", kind, "resume", held.text("token")), 200, "state", "held", "token", held.text("token"))
			other := map[string]string{"mutex": "mutex", "read": "write", "write": "read"}[kind]
			w.want("another waits", w.acquire(b, 3, "a", "kind", other, "wait_ms", "0"), 202, "state", "waiting")
			w.want("resume by another token", w.acquire(b, 3, "a", "kind", other, "resume", "256"), 410, "code", "lost")
			d.lost.Store(false)
			for range 10 { // a is not asked any more
				time.Sleep(3 * time.Second)
				w.want("renew", w.renew(b, 2), 200, "state", "held", "token", held.text("token"))
			}
			if holders, waiters := w.tickets(c, "a"); holders != 1 || waiters != 0 {
				t.Errorf("%s: %d tickets hold, %d wait", kind, holders, waiters)
			}
			w.want("release", w.release(b, 2, "a"), 200, "result", "released")
			if holders, waiters := w.tickets(c, "a"); holders+waiters != 0 {
				t.Errorf("%s: %d tickets are left", kind, holders+waiters)
			}
		})
	}
}

// forgetful is a way to a store whose client loses the tickets of Trys on the way: it
// answers that they are gone, as one does whose session has just ended.
type forgetful struct {
	*memlock.Driver
	trys atomic.Int32 // to lose
}

func (d *forgetful) Join(ctx context.Context, t *driver.Ticket, wait bool) (driver.Status, error) {
	st, err := d.Driver.Join(ctx, t, wait)
	if err == nil && !wait && d.trys.Add(-1) >= 0 {
		_, err = d.Leave(ctx, []driver.Ref{{Ticket: t, State: driver.Held}})
		return driver.Status{State: driver.Gone}, err
	}
	return st, err
}

// TestOwnerCheckLooksAgain lets the server's own ticket end while it checks an owner that
// holds by another server's: no loss is told, and the same question again finds the hold.
func TestOwnerCheckLooksAgain(t *testing.T) {
	bubble(t, func(w *world) {
		d := &forgetful{Driver: memlock.New(w.store)}
		a, b := w.server(), w.serverWith(w.clientOf(d), Options{})
		held := w.acquire(a, 1, "a")
		d.trys.Store(1)
		w.want("resume", w.acquire(b, 1, "a", "resume", held.text("token")), 503, "code", "store_unknown")
		w.want("resume again", w.acquire(b, 1, "a", "resume", held.text("token")), 200, "state", "held", "token", held.text("token"))
		w.release(a, 1, "a")
		d.trys.Store(1)
		time.Sleep(10 * time.Second)
		w.want("resume of what is gone", w.acquire(b, 1, "a", "resume", held.text("token")), 410, "code", "lost")
	})
}

// TestGrantIsNotGivenBackUnderARequest lets the time of a grant of which nothing was sent
// end while a request about it is under way: the request answers with it. Without one it is
// given back, and the id is unknown afterwards, not released, since nobody released it.
func TestGrantIsNotGivenBackUnderARequest(t *testing.T) {
	bubble(t, func(w *world) {
		s := w.server()
		w.acquire(s, 1, "a")
		w.want("wait", w.acquire(s, 2, "a", "wait_ms", "0"), 202, "state", "waiting")
		w.release(s, 1, "a")
		settle()
		s.table.mu.Lock()
		h := s.table.holds[s.table.keyOf(LocalName, id(2))]
		h.polls++ // as a request does first
		s.table.mu.Unlock()
		time.Sleep(4500*time.Millisecond + 10*time.Millisecond)
		s.table.mu.Lock()
		if h.removed || h.state != granted {
			t.Errorf("state %d, removed %v", h.state, h.removed)
		}
		h.polls--
		s.table.mu.Unlock()
		time.Sleep(time.Second)
		s.table.mu.Lock()
		if !h.removed {
			t.Error("a grant that nobody asked for is kept")
		}
		st := h.standLocked(time.Now())
		s.table.mu.Unlock()
		e := st.entry(nil)
		if !strings.Contains(string(e.encoded()), "unknown_hold") {
			t.Errorf("a request that found it before: %s", e.encoded())
		}
	})
}

// slowJoin is a driver whose Join is answered 1.3 s late.
type slowJoin struct{ *memlock.Driver }

func (d slowJoin) Join(ctx context.Context, t *driver.Ticket, wait bool) (driver.Status, error) {
	time.Sleep(1300 * time.Millisecond)
	return d.Driver.Join(ctx, t, wait)
}

// TestGrantToldByARenewal checks that a renewal which answers with a grant that came while
// the renewal was under way has told the client of it: the claim alone ends that hold.
func TestGrantToldByARenewal(t *testing.T) {
	bubble(t, func(w *world) {
		s := w.serverWith(w.clientOf(slowJoin{memlock.New(w.store)}), Options{})
		w.want("acquire", w.acquire(s, 1, "a", "wait_ms", "0"), 503, "code", "store_unknown")
		told := w.renew(s, 1) // the store's answer comes now
		w.want("renew", told, 200, "state", "held")
		time.Sleep(5 * time.Second) // a grant of which nothing was told is given back after half a TTL
		w.want("renew again", w.renew(s, 1), 200, "state", "held", "token", told.text("token"))
	})
}

// TestUnsentGrantIsKeptForTheNextRenewal grants just after a renewal of the wait, without a
// stream of events. The next renewal comes a third of the TTL after the last one, and later by
// what requests take: it finds the grant.
func TestUnsentGrantIsKeptForTheNextRenewal(t *testing.T) {
	for _, late := range []time.Duration{0, 100 * time.Millisecond, 1400 * time.Millisecond} {
		bubble(t, func(w *world) {
			s := w.server()
			w.acquire(s, 1, "a")
			w.want("wait", w.acquire(s, 2, "a", "wait_ms", "0"), 202, "state", "waiting")
			time.Sleep(3 * time.Second)
			w.want("renew", w.renew(s, 2), 200, "state", "waiting")
			w.release(s, 1, "a")
			time.Sleep(3*time.Second + late)
			w.want("renew again", w.renew(s, 2), 200, "state", "held")
			w.release(s, 2, "a")
			time.Sleep(time.Minute)
		})
	}
}
