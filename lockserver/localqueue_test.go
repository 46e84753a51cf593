package lockserver

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memlock"
)

// cuttable is a way to a store that can be cut: requests are then answered never.
type cuttable struct {
	*memlock.Driver
	cut atomic.Bool
}

func (d *cuttable) pass(ctx context.Context) error {
	if !d.cut.Load() {
		return nil
	}
	<-ctx.Done()
	return driver.Wrap(driver.Unknown, context.Cause(ctx))
}

func (d *cuttable) Join(ctx context.Context, t *driver.Ticket, wait bool) (driver.Status, error) {
	if err := d.pass(ctx); err != nil {
		return driver.Status{}, err
	}
	return d.Driver.Join(ctx, t, wait)
}

func (d *cuttable) Renew(ctx context.Context, refs []driver.Ref) ([]driver.Status, error) {
	if err := d.pass(ctx); err != nil {
		return nil, err
	}
	return d.Driver.Renew(ctx, refs)
}

// TestIDBehindAnotherHasItsPlace lets two ids wait for a permit at one server: the second
// one has no place at the store, and is told of that of the first. Once the server is cut
// off from its store, both learn of no more than the store has confirmed, and then of none.
func TestIDBehindAnotherHasItsPlace(t *testing.T) {
	bubble(t, func(w *world) {
		d := &cuttable{Driver: memlock.New(w.store)}
		s := w.serverWith(w.clientOf(d), Options{})
		all := w.permits(w.client(), "a", 3)
		for _, n := range []int{1, 2} {
			r := w.acquire(s, n, "a", append(permitOf3, "wait_ms", "0")...)
			if w.want("its place", r, 202, "state", "waiting"); r.number("left_ms") < 8000 {
				t.Errorf("id %d, which has just come: %s", n, r.raw)
			}
		}
		check := func(least time.Duration) (most time.Duration) {
			t.Helper()
			settle() // the first one may just be renewed
			first, second := w.renew(s, 1), w.renew(s, 2)
			most = time.Duration(second.number("left_ms")) * time.Millisecond
			if most < least || most > time.Duration(first.number("left_ms"))*time.Millisecond {
				t.Errorf("the first: %s, the second: %s", first.raw, second.raw)
			}
			return most
		}
		for range 40 {
			time.Sleep(time.Second)
			check(5 * time.Second)
		}
		d.cut.Store(true)
		kept := check(5 * time.Second)
		for range 4 {
			time.Sleep(time.Second)
			if kept -= time.Second; check(0) > kept {
				t.Error("a server that is cut off from its store promises more")
			}
		}
		time.Sleep(kept)
		for n := 1; n <= 2; n++ {
			w.want("without its store", w.renew(s, n), 200, "code", "store_unknown")
			w.want("without its store", w.acquire(s, n, "a", append(permitOf3, "wait_ms", "0")...), 503, "code", "store_unknown")
		}
		d.cut.Store(false)
		time.Sleep(3 * time.Second)
		check(5 * time.Second)
		for _, h := range all {
			_ = h.Unlock()
		}
		settle()
		for n := 1; n <= 2; n++ {
			w.want("a permit", w.renew(s, n), 200, "state", "held")
			w.release(s, n, "a")
		}
		w.wantNoQueues(s)
		time.Sleep(time.Minute)
	})
}

// TestIDBehindAHolderHasItsPlace lets ids wait behind one that holds at the same server, which
// hands the lock on and has no place for them at the store: they wait for as long as the
// store keeps that hold. It is not renewed at last, and the second one holds after it.
func TestIDBehindAHolderHasItsPlace(t *testing.T) {
	for _, how := range [][]string{{"pinned", "true"}, {"kind", "write", "pinned", "true"}, {"kind", "permits", "permits", "3", "of", "3"}} {
		bubble(t, func(w *world) {
			s := w.server()
			w.want("the holder", w.acquire(s, 1, "a", how...), 200, "state", "held")
			w.want("the second", w.acquire(s, 2, "a", append(how, "wait_ms", "0")...), 202, "state", "waiting")
			w.want("the third", w.acquire(s, 3, "a", append(how, "wait_ms", "0")...), 202, "state", "waiting")
			ask := func(n int, least int64) {
				t.Helper()
				if r := w.renew(s, n); r.text("state") == "waiting" && r.number("left_ms") < least {
					t.Errorf("%v: id %d: %s", how, n, r.raw)
				}
			}
			for range 20 {
				time.Sleep(2 * time.Second)
				w.renew(s, 1)
				ask(2, 8000)
				ask(3, 8000)
			}
			for range 5 { // the holder is silent
				time.Sleep(2 * time.Second)
				ask(2, 500)
				ask(3, 500)
			}
			w.want("the second", w.renew(s, 2), 200, "state", "held")
			w.release(s, 2, "a")
			settle()
			w.want("the third", w.renew(s, 3), 200, "state", "held")
			w.release(s, 3, "a")
			time.Sleep(time.Minute)
			w.wantNoQueues(s)
		})
	}
}

// TestFirstAnswerOfTheStoreIsWaitedFor lets two ids come at a time to a server whose store
// takes a while to answer: both are told of a place.
func TestFirstAnswerOfTheStoreIsWaitedFor(t *testing.T) {
	bubble(t, func(w *world) {
		d := &tardy{Driver: memlock.New(w.store)}
		s := w.serverWith(w.clientOf(d), Options{})
		all := w.permits(w.client(), "a", 3)
		d.join.Store(int64(700 * time.Millisecond))
		answers := make(chan reply)
		for n := 1; n <= 2; n++ {
			go func() { answers <- w.acquire(s, n, "a", append(permitOf3, "wait_ms", "0")...) }()
		}
		for range 2 {
			if r := <-answers; r.status != 202 || r.number("left_ms") < 8000 {
				t.Error(r.raw)
			}
		}
		for _, h := range all {
			_ = h.Unlock()
		}
		time.Sleep(time.Minute)
		w.wantNoQueues(s)
	})
}

// TestPermitOfOneAndMutexAreOneQueue lets a permit of one wait behind a mutex, which is the
// same to the store and to its client.
func TestPermitOfOneAndMutexAreOneQueue(t *testing.T) {
	bubble(t, func(w *world) {
		s := w.server()
		w.want("the holder", w.acquire(s, 1, "a", "pinned", "true"), 200, "state", "held")
		if r := w.acquire(s, 2, "a", "kind", "permits", "of", "1", "wait_ms", "0"); r.status != 202 || r.number("left_ms") < 8000 {
			t.Error(r.raw)
		}
		w.release(s, 1, "a")
		settle()
		w.want("the permit", w.renew(s, 2), 200, "state", "held")
		w.release(s, 2, "a")
		w.wantNoQueues(s)
	})
}

// wantNoQueues fails the test if a server without holds has a queue.
func (w *world) wantNoQueues(s *Server) {
	w.Helper()
	s.table.mu.Lock()
	defer s.table.mu.Unlock()
	if len(s.table.queues)+len(s.table.holds) != 0 {
		w.Errorf("left behind: %d queues and %d holds", len(s.table.queues), len(s.table.holds))
	}
}
