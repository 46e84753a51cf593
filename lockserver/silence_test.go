package lockserver

import (
	"context"
	"iter"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memlock"
)

// mute is a driver whose questions are not answered while it is mute.
type mute struct {
	*memlock.Driver
	on    atomic.Bool
	asked atomic.Int32 // Identity
}

// wait waits for an answer that does not come.
func (d *mute) wait(ctx context.Context) error {
	if !d.on.Load() {
		return nil
	}
	<-ctx.Done()
	return driver.Errorf(driver.Unknown, "no answer: %w", ctx.Err())
}

func (d *mute) Identity(ctx context.Context) (string, error) {
	d.asked.Add(1)
	if err := d.wait(ctx); err != nil {
		return "", err
	}
	return "mute", nil
}

func (d *mute) Inspect(ctx context.Context, name string) (driver.Queue, error) {
	if err := d.wait(ctx); err != nil {
		return driver.Queue{}, err
	}
	return d.Driver.Inspect(ctx, name)
}

func (d *mute) Break(ctx context.Context, name, ticket string) error {
	if err := d.wait(ctx); err != nil {
		return err
	}
	return d.Driver.Break(ctx, name, ticket)
}

func (d *mute) Names(ctx context.Context, prefix string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		if err := d.wait(ctx); err != nil {
			yield("", err)
			return
		}
		d.Driver.Names(ctx, prefix)(yield)
	}
}

var _ driver.Identifier = (*mute)(nil)

// TestSilentStoreKeepsNobodyFromHealth checks that /healthz answers at once, and that
// requests wait together, while the store has not told its identity.
func TestSilentStoreKeepsNobodyFromHealth(t *testing.T) {
	bubble(t, func(w *world) {
		d := &mute{Driver: memlock.New(w.store)}
		d.on.Store(true)
		s := w.serverWith(w.clientOf(d), Options{})
		begun := time.Now()
		var group sync.WaitGroup
		for n := range 5 {
			group.Go(func() { w.want("acquire", w.acquire(s, n, "a"), 503, "code", "store_unknown") })
		}
		gone, cancel := context.WithCancel(bg)
		group.Go(func() { w.postCtx(gone, s, "/v1/renew", "id", id(9)) })
		synctest.Wait()
		cancel()
		w.want("health", w.get(s, "/healthz"), 200, "status", "ok")
		if took := time.Since(begun); took != 0 {
			t.Errorf("/healthz took %v", took)
		}
		group.Wait()
		if took := time.Since(begun); took > ioTimeout || d.asked.Load() != 1 {
			t.Errorf("five requests took %v and %d questions", took, d.asked.Load())
		}
		d.on.Store(false)
		w.want("acquire", w.acquire(s, 1, "a"), 200, "state", "held")
		w.release(s, 1, "a")
	})
}

// TestSilentStoreKeepsNoRequest checks that questions about locks are answered within a
// bound while the store is silent.
func TestSilentStoreKeepsNoRequest(t *testing.T) {
	bubble(t, func(w *world) {
		d := &mute{Driver: memlock.New(w.store)}
		admin := Principal{Name: "admin", Grants: []Grant{{May: []Right{RightRead, RightLock, RightBreak}}}}
		s := w.serverWith(w.clientOf(d), Options{Auth: byHeader(admin)})
		by := as(s, "admin")
		w.acquire(by, 1, "a")
		d.on.Store(true)
		for what, ask := range map[string]func() reply{
			"lock":  func() reply { return w.get(by, "/v1/lock?name=a") },
			"locks": func() reply { return w.get(by, "/v1/locks") },
			"watch": func() reply { return w.get(by, "/v1/watch") },
			"break": func() reply { return w.post(by, "/v1/break", "name", "a", "ticket", "t") },
			"owner": func() reply { return w.post(by, "/v1/break", "name", "a", "owner", "o") },
		} {
			begun := time.Now()
			var r reply
			done := make(chan bool)
			go func() { r = ask(); close(done) }()
			select {
			case <-done:
			case <-time.After(time.Hour):
				t.Errorf("%s: no answer within an hour", what)
				d.on.Store(false)
				<-done
				d.on.Store(true)
				continue
			}
			w.want(what, r, 503, "code", "store_unknown")
			if took := time.Since(begun); took > maxWait {
				t.Errorf("%s: %v", what, took)
			}
		}
		d.on.Store(false)
		w.release(by, 1, "a")
	})
}

var _ holdfast.Driver = (*mute)(nil)

// TestSilentClientsDelayByOneTTL lets the clients of three waiters fall silent whose events
// still flow, as those of a machine that was cut off. Each is granted the lock by an event
// before its silence has lasted a TTL. The next one holds a TTL after the last word of any:
// a hold of which the client has no answer ends with its place.
func TestSilentClientsDelayByOneTTL(t *testing.T) {
	bubble(t, func(w *world) {
		s := w.server()
		st := w.open(s, request("GET", "/v1/events?client="+clientOf(id(1)), "", ""))
		w.acquire(s, 1, "a")
		for n := 2; n <= 4; n++ {
			w.acquire(s, n, "a", "wait_ms", "0")
			time.Sleep(2 * time.Second)
			w.renew(s, 1)
		}
		spoken := time.Now().Add(-2 * time.Second)
		next := w.lockAfter("a")
		w.release(s, 1, "a")
		if took := (<-next).Sub(spoken); took > 9*time.Second {
			t.Errorf("the next one held %v after the last word of the silent ones", took)
		}
		st.events()
	})
}

// TestHoldThatWasAnsweredOutlivesItsPlace lets a client fall silent after it was granted the
// lock by an event, and has renewed it: its claim alone ends that hold.
func TestHoldThatWasAnsweredOutlivesItsPlace(t *testing.T) {
	bubble(t, func(w *world) {
		s := w.server()
		st := w.open(s, request("GET", "/v1/events?client="+clientOf(id(1)), "", ""))
		w.acquire(s, 1, "a")
		w.acquire(s, 2, "a", "wait_ms", "0")
		time.Sleep(5 * time.Second)
		next := w.lockAfter("a")
		w.release(s, 1, "a")
		time.Sleep(time.Second)
		w.want("the renewal", w.renew(s, 2), 200, "state", "held")
		spoken := time.Now()
		if took := (<-next).Sub(spoken); took < 8800*time.Millisecond {
			t.Errorf("the next one held %v after the renewal", took)
		}
		st.events()
	})
}
