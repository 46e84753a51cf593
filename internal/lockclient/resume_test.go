package lockclient

import (
	"context"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memlock"
)

// lateHeard is a way to a store whose pushes come late, and that is slow to tell of queues.
type lateHeard struct {
	unrenewed
	push, inspect atomic.Int64
}

func (d *lateHeard) Watch(ctx context.Context, notify func(string, driver.Status)) error {
	return d.Driver.Watch(ctx, func(id string, st driver.Status) {
		time.AfterFunc(time.Duration(d.push.Load()), func() { notify(id, st) })
	})
}

func (d *lateHeard) Inspect(ctx context.Context, name string) (driver.Queue, error) {
	time.Sleep(time.Duration(d.inspect.Load()))
	return d.Driver.Inspect(ctx, name)
}

// TestResumeThatFindsAnOldGrantIsRenewed lets a client hear of its grant by the event of server
// b, believe on the claim of a, and resume at c, whose own wait hears of the grant just then.
func TestResumeThatFindsAnOldGrantIsRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 3)
		db, dc := &unrenewed{Driver: memlock.New(w.store)}, &lateHeard{unrenewed: unrenewed{Driver: memlock.New(w.store)}}
		a, b, c := w.net.servers[w.hosts[0]], http.Handler(w.startOver(w.hosts[1], db)), http.Handler(w.startOver(w.hosts[2], dc))
		way := new(splitWay)
		way.to(c, b)
		dc.lost.Store(true)
		db.lost.Store(true)
		w.net.set("localhost:7420", way)
		w.hosts = []string{"localhost:7420"}
		holder := w.lock(w.direct(), "n")
		waiter := w.lockAsync(w.client(), "n")
		for _, next := range []http.Handler{b, a} { // a renewal comes to each
			way.to(next, b)
			time.Sleep(3200 * time.Millisecond)
		}
		dc.push.Store(int64(20 * time.Millisecond))
		dc.inspect.Store(int64(100 * time.Millisecond))
		way.to(c, b)
		if err := holder.Unlock(); err != nil {
			t.Fatal(err)
		}
		h := <-waiter
		begun := time.Now()
		w.kill("localhost:7420")
		w.net.cut.Store(true)
		next := w.lock(w.direct(), "n")
		if h.Err() == nil {
			t.Errorf("a stranger holds after %v, and the client believes in its hold for %v more", time.Since(begun), time.Until(h.Deadline()))
		}
		w.net.cut.Store(false)
		_ = next.Unlock()
		time.Sleep(time.Minute)
	})
}

// TestServerThatWasNotChosenForATTLCostsNoPlace lets a balancer choose b for more than a TTL, and
// then a again, where the place has ended: the one at b goes on.
func TestServerThatWasNotChosenForATTLCostsNoPlace(t *testing.T) {
	bubble(t, func(w *world) {
		way, a, b := w.split()
		holder := w.lock(w.direct(), "n")
		waiter := w.lockAsync(w.client(), "n")
		way.to(b, b)
		time.Sleep(10 * time.Second) // renewals have come to b
		stranger := w.lockAsync(w.direct(), "n")
		way.to(a, a)
		time.Sleep(3 * time.Second)
		way.to(b, b)
		_ = holder.Unlock()
		select {
		case h := <-waiter:
			_ = h.Unlock()
			_ = (<-stranger).Unlock()
		case h := <-stranger:
			t.Error("a stranger that came later holds first")
			_ = h.Unlock()
			_ = (<-waiter).Unlock()
		}
		time.Sleep(time.Minute)
	})
}
