package lockserver

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memlock"
)

// slowLeave is a store that carries a Leave out after some time.
type slowLeave struct {
	*memlock.Driver
	after time.Duration
}

func (d *slowLeave) Leave(ctx context.Context, refs []driver.Ref) ([]driver.Status, error) {
	select {
	case <-time.After(d.after):
		return d.Driver.Leave(ctx, refs)
	case <-ctx.Done():
		return nil, driver.Errorf(driver.Unknown, "no answer in time")
	}
}

// TestReleaseOfAWaitIsAnsweredAfterTheStoreHasLeft releases an id that waits, at a store
// that takes its time: once the server says released, the queue has no ticket of it, as
// when a hold is released.
func TestReleaseOfAWaitIsAnsweredAfterTheStoreHasLeft(t *testing.T) {
	bubble(t, func(w *world) {
		d := &slowLeave{memlock.New(w.store), 200 * time.Millisecond}
		s := w.serverWith(w.clientOf(d), Options{})
		holder, waiter := id(1), id(2)
		w.post(s, "/v1/acquire", "name", "n", "id", holder, "ttl_ms", "9000")
		if a := w.post(s, "/v1/acquire", "name", "n", "id", waiter, "ttl_ms", "9000", "wait_ms", "100"); a.text("state") != "waiting" {
			t.Fatal(a.raw)
		}
		begun := time.Now()
		if a := w.post(s, "/v1/release", "name", "n", "id", waiter).entry(0); a.text("result") != "released" {
			t.Errorf("the release: %s", a.raw)
		}
		took := time.Since(begun)
		if info, err := w.client().Inspect(bg, "n"); err != nil || len(info.Waiters) != 0 {
			t.Errorf("after the answer: %d waiters, %v", len(info.Waiters), err)
		}
		if took > d.after {
			t.Errorf("the answer took %v", took)
		}
		synctest.Wait()
	})
}

// TestReleaseOfAWaitIsUnknownWhileTheStoreIsSilent releases an id that waits, at a store that
// does not answer: the client is told so within a third of the TTL, and asks again.
func TestReleaseOfAWaitIsUnknownWhileTheStoreIsSilent(t *testing.T) {
	bubble(t, func(w *world) {
		d := &slowLeave{memlock.New(w.store), time.Hour}
		s := w.serverWith(w.clientOf(d), Options{})
		holder, waiter := id(1), id(2)
		w.post(s, "/v1/acquire", "name", "n", "id", holder, "ttl_ms", "9000")
		w.post(s, "/v1/acquire", "name", "n", "id", waiter, "ttl_ms", "9000", "wait_ms", "100")
		begun := time.Now()
		if a := w.post(s, "/v1/release", "name", "n", "id", waiter).entry(0); a.text("result") != "unknown" {
			t.Errorf("the release: %s", a.raw)
		}
		if took := time.Since(begun); took != 2700*time.Millisecond {
			t.Errorf("the answer took %v", took)
		}
		if a := w.post(s, "/v1/release", "name", "n", "id", waiter, "moved", "true").entry(0); a.text("result") != "released" {
			t.Errorf("the release, repeated: %s", a.raw)
		}
		if info, err := w.client().Inspect(bg, "n"); err != nil || len(info.Waiters) != 0 {
			t.Errorf("after the answer: %d waiters, %v", len(info.Waiters), err)
		}
	})
}

// lateLeave is a driver whose Leave waits until it is open.
type lateLeave struct {
	*memlock.Driver
	open chan struct{}
}

func (d *lateLeave) Leave(ctx context.Context, refs []driver.Ref) ([]driver.Status, error) {
	<-d.open
	return d.Driver.Leave(ctx, refs)
}

// TestReleaseBesideARenewalLeavesNothing releases a hold at one server while another, whose
// ticket the release has broken, answers a renewal: it finds the hold that is about to end,
// and shares its place.
func TestReleaseBesideARenewalLeavesNothing(t *testing.T) {
	bubble(t, func(w *world) {
		d := &lateLeave{Driver: memlock.New(w.store), open: make(chan struct{})}
		a, b, c := w.server(), w.serverWith(w.clientOf(d), Options{}), w.client()
		token := w.acquire(b, 1, "a").text("token")
		w.want("resume", w.acquire(a, 1, "a", "resume", token), 200, "state", "held")
		released := make(chan reply)
		go func() { released <- w.release(b, 1, "a", "moved", "true") }()
		synctest.Wait()
		w.want("renew", w.renew(a, 1), 200, "state", "held", "token", token)
		close(d.open)
		w.want("release", <-released, 200, "result", "released")
		if holders, waiters := w.tickets(c, "a"); holders+waiters != 0 {
			t.Errorf("%d tickets hold, %d wait", holders, waiters)
		}
	})
}
