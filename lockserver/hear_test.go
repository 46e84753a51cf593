package lockserver

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memlock"
)

// unread is a lossy way to a store on which Inspect may have no answer.
type unread struct {
	lossy
	silent atomic.Bool
}

func (d *unread) Inspect(ctx context.Context, name string) (driver.Queue, error) {
	if d.silent.Load() {
		<-ctx.Done()
		return driver.Queue{}, driver.Errorf(driver.Unknown, "no answer: %w", ctx.Err())
	}
	return d.lossy.Inspect(ctx, name)
}

// onlyTicketWaits lets a client of two servers hold by an event of the first one, which
// gives its own ticket up because the client has asked the other for a TTL. The second
// server has missed the grant: the ticket of its wait is the only one that holds. It
// returns that server and the token.
func (w *world) onlyTicketWaits(d *unread, c *holdfast.Client) (b *Server, token string) {
	w.Helper()
	a, b := w.server(), w.serverWith(w.clientOf(d), Options{})
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
		w.Fatalf("%d tickets hold, %d wait; want that of the second server alone", holders, waiters)
	}
	events := st.events()
	told := events[len(events)-1]
	w.want("the event", told, 200, "event", "held")
	w.want("renew where the grant is not known", w.renew(b, 2), 200, "state", "waiting")
	return b, told.text("token")
}

// TestResumeWhereTheOnlyTicketWaits resumes a hold at a server where its id waits, by the
// only ticket that holds: the hold goes on. While the store does not answer, so does the
// wait.
func TestResumeWhereTheOnlyTicketWaits(t *testing.T) {
	for _, silent := range []bool{false, true} {
		bubble(t, func(w *world) {
			d, c := &unread{lossy: lossy{Driver: memlock.New(w.store)}}, w.client()
			b, token := w.onlyTicketWaits(d, c)
			if silent {
				d.silent.Store(true)
				d.lost.Store(true) // else a renewal of the wait tells of the grant
				w.want("resume in the silence", w.acquire(b, 2, "a", "resume", token), 503, "code", "store_unknown")
				d.silent.Store(false)
				time.Sleep(1500 * time.Millisecond) // the question has ended
			}
			w.want("resume", w.acquire(b, 2, "a", "resume", token), 200, "state", "held", "token", token, "left_ms", "8890")
			d.lost.Store(false)
			for range 5 {
				time.Sleep(3 * time.Second)
				w.want("renew", w.renew(b, 2), 200, "state", "held", "token", token)
			}
			if holders, waiters := w.tickets(c, "a"); holders != 1 || waiters != 0 {
				t.Errorf("%d tickets hold, %d wait", holders, waiters)
			}
			w.want("release", w.release(b, 2, "a"), 200, "result", "released")
			if holders, waiters := w.tickets(c, "a"); holders+waiters != 0 {
				t.Errorf("%d tickets are left", holders+waiters)
			}
		})
	}
}

// TestWaitHearsOfTheGrantBesideAResume lets a wait be told of its grant while the store does
// not answer whether the owner holds: that is an answer, too.
func TestWaitHearsOfTheGrantBesideAResume(t *testing.T) {
	bubble(t, func(w *world) {
		d, c := &unread{lossy: lossy{Driver: memlock.New(w.store)}}, w.client()
		b, token := w.onlyTicketWaits(d, c)
		d.silent.Store(true)
		w.want("resume", w.acquire(b, 2, "a", "resume", token), 200, "state", "held", "token", token)
		d.silent.Store(false)
		time.Sleep(3 * time.Second)
		w.want("renew", w.renew(b, 2), 200, "state", "held", "token", token)
		if holders, waiters := w.tickets(c, "a"); holders != 1 || waiters != 0 {
			t.Errorf("%d tickets hold, %d wait", holders, waiters)
		}
		w.want("release", w.release(b, 2, "a"), 200, "result", "released")
	})
}

// TestReleaseEndsTheQuestionOfAResume releases an id while the store is asked whether its
// owner holds: nothing is left once the release is answered.
func TestReleaseEndsTheQuestionOfAResume(t *testing.T) {
	bubble(t, func(w *world) {
		d, c := &unread{lossy: lossy{Driver: memlock.New(w.store)}}, w.client()
		b, token := w.onlyTicketWaits(d, c)
		d.silent.Store(true)
		d.lost.Store(true)
		answered := make(chan reply)
		go func() { answered <- w.acquire(b, 2, "a", "resume", token) }()
		synctest.Wait()
		w.want("release", w.release(b, 2, "a"), 200, "result", "released")
		w.want("resume", <-answered, 410, "code", "released")
		d.silent.Store(false)
		if holders, waiters := w.tickets(c, "a"); holders+waiters != 0 {
			t.Errorf("%d tickets are left", holders+waiters)
		}
	})
}
