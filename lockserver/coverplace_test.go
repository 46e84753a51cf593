package lockserver

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memlock"
)

// tardy is a way to a store whose answers to renewals of holds come late, or fail, and whose releases begin late.
type tardy struct {
	*memlock.Driver
	renew, leave, join atomic.Int64 // nanoseconds
	fails              atomic.Int64 // renewals that fail
}

func (d *tardy) Renew(ctx context.Context, refs []driver.Ref) ([]driver.Status, error) {
	if d.fails.Add(-1) >= 0 {
		return nil, driver.Errorf(driver.Unavailable, "connection reset")
	}
	sts, err := d.Driver.Renew(ctx, refs)
	select {
	case <-time.After(time.Duration(d.renew.Load())):
	case <-ctx.Done():
		return nil, driver.Wrap(driver.Unknown, context.Cause(ctx))
	}
	return sts, err
}

func (d *tardy) Join(ctx context.Context, t *driver.Ticket, wait bool) (driver.Status, error) {
	st, err := d.Driver.Join(ctx, t, wait)
	select {
	case <-time.After(time.Duration(d.join.Load())):
	case <-ctx.Done():
		return driver.Status{}, driver.Wrap(driver.Unknown, context.Cause(ctx))
	}
	return st, err
}

func (d *tardy) Leave(ctx context.Context, refs []driver.Ref) ([]driver.Status, error) {
	time.Sleep(time.Duration(d.leave.Load()))
	return d.Driver.Leave(ctx, refs)
}

// behind lets id 2 wait behind id 1, which has a permit whose ticket is 2.9 s old, and
// releases id 1 after release is called.
func behind(w *world, join ...time.Duration) (s *Server, d *tardy, direct *holdfast.Client, st *openStream, rest []*holdfast.Hold) {
	d = &tardy{Driver: memlock.New(w.store)}
	s, direct = w.serverWith(w.clientOf(d), Options{}), w.client()
	st = w.open(s, request("GET", "/v1/events?client="+clientOf(id(2)), "", ""))
	all := w.permits(direct, "a", 3)
	w.want("wait", w.acquire(s, 1, "a", append(permitOf3, "wait_ms", "0")...), 202, "state", "waiting")
	time.Sleep(2900 * time.Millisecond)
	go w.acquire(s, 2, "a", append(permitOf3, "wait_ms", "100")...)
	settle()
	for _, join := range join {
		d.join.Store(int64(join))
	}
	if err := all[0].Unlock(); err != nil {
		w.Fatal(err)
	}
	settle()
	w.want("its place", w.acquire(s, 2, "a", append(permitOf3, "wait_ms", "0")...), 202, "state", "waiting")
	return s, d, direct, st, all[1:]
}

var permitOf3 = []string{"kind", "permits", "of", "3"}

// TestReleaseWhileTheGrantIsRenewed releases an id while its grant is being renewed: the
// answer comes after the ticket has left.
func TestReleaseWhileTheGrantIsRenewed(t *testing.T) {
	bubble(t, func(w *world) {
		s, d, direct, st, rest := behind(w)
		defer st.close()
		d.renew.Store(int64(1400 * time.Millisecond))
		go w.release(s, 1, "a")
		time.Sleep(500 * time.Millisecond)
		d.leave.Store(int64(time.Second))
		w.want("release", w.release(s, 2, "a"), 200, "result", "released")
		if holders, _ := w.tickets(direct, "a"); holders != 2 {
			t.Errorf("%d permits are held after the release, of which two are of others", holders)
		}
		time.Sleep(5 * time.Second)
		if holders, _ := w.tickets(direct, "a"); holders != 2 {
			t.Errorf("%d permits are held 5 s after the release", holders)
		}
		for _, h := range rest {
			_ = h.Unlock()
		}
		time.Sleep(time.Minute)
	})
}

// TestOneLostRenewalCostsNoPlace loses one renewal, of the grant that is handed on.
func TestOneLostRenewalCostsNoPlace(t *testing.T) {
	bubble(t, func(w *world) {
		s, d, _, st, rest := behind(w)
		defer st.close()
		go w.acquire(s, 3, "a", append(permitOf3, "wait_ms", "20000")...) // behind 2
		settle()
		d.fails.Store(1)
		w.want("release", w.release(s, 1, "a"), 200, "result", "released")
		time.Sleep(500 * time.Millisecond)
		r2 := w.renew(s, 2)
		s.table.mu.Lock()
		h3 := s.table.holds[s.table.keyOf(LocalName, id(3))]
		third := h3 != nil && (h3.state == granted || h3.state == held)
		s.table.mu.Unlock()
		if third || r2.text("code") == "unknown_hold" {
			t.Errorf("the store lost one renewal: %s; the third one holds: %v", r2.raw, third)
		}
		w.release(s, 2, "a")
		w.release(s, 3, "a")
		for _, h := range rest {
			_ = h.Unlock()
		}
		time.Sleep(time.Minute)
	})
}

// TestMaxHoldEndsBeforeThePlace grants with a max_hold below the time for which the
// client was told that its place is kept.
func TestMaxHoldEndsBeforeThePlace(t *testing.T) {
	for _, kind := range []string{"mutex", "permits"} {
		bubble(t, func(w *world) {
			s, direct := w.server(), w.client()
			more := []string{"max_hold_ms", "1000"}
			var first *holdfast.Hold
			var err error
			if kind == "permits" {
				more = append(more, "kind", "permits", "of", "1")
				first, err = direct.Semaphore("a", 1).Acquire(context.Background(), 1)
			} else {
				first, err = direct.Mutex("a").Lock(context.Background())
			}
			if err != nil {
				t.Fatal(err)
			}
			st := w.open(s, request("GET", "/v1/events?client="+clientOf(id(1)), "", ""))
			begun := time.Now()
			told := w.acquire(s, 1, "a", append(more, "wait_ms", "0")...)
			w.want("its place", told, 202, "state", "waiting")
			_ = first.Unlock()
			settle()
			events := st.events()
			w.want("the event", events[len(events)-1], 200, "event", "held")
			left := time.Duration(told.number("left_ms")) * time.Millisecond
			believed := begun.Add(left - left/100 - 20*time.Millisecond)
			if kind == "permits" {
				first, err = direct.Semaphore("a", 1).Acquire(context.Background(), 1)
			} else {
				first, err = direct.Mutex("a").Lock(context.Background())
			}
			if now := time.Now(); err != nil || now.Before(believed) {
				t.Errorf("%s: a stranger holds %v after the wait began, and the client believes in its grant for %v more", kind, now.Sub(begun), believed.Sub(now))
			}
			_ = first.Unlock()
			time.Sleep(time.Minute)
		})
	}
}
