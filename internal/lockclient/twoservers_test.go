package lockclient

import (
	"context"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memlock"
)

// splitWay is a balancer whose requests come to one server, and its streams to another one.
type splitWay struct {
	posts, streams atomic.Pointer[http.Handler]
}

func (b *splitWay) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := &b.posts
	if r.URL.Path == "/v1/events" {
		h = &b.streams
	}
	(*h.Load()).ServeHTTP(w, r)
}

func (b *splitWay) to(posts, streams http.Handler) { b.posts.Store(&posts); b.streams.Store(&streams) }

// unrenewed is a way to a store that may lose renewals, and no pushes.
type unrenewed struct {
	*memlock.Driver
	lost atomic.Bool
}

func (d *unrenewed) Renew(ctx context.Context, refs []driver.Ref) ([]driver.Status, error) {
	if d.lost.Load() {
		return nil, driver.Errorf(driver.Unavailable, "connection reset")
	}
	return d.Driver.Renew(ctx, refs)
}

// split puts a way before the two servers, on which all comes to the first one, and makes it
// the only host that clients know.
func (w *world) split() (way *splitWay, a, b http.Handler) {
	a, b = w.net.servers[w.hosts[0]], w.net.servers[w.hosts[1]]
	way = new(splitWay)
	way.to(a, a)
	w.net.set("localhost:7420", way)
	w.hosts = []string{"localhost:7420"}
	return way, a, b
}

// permitsOf3 waits for n of three permits.
func permitsOf3(t *testing.T, c *holdfast.Client, n int) *holdfast.Hold {
	h, err := c.Semaphore("s", 3, holdfast.WithTTL(9*time.Second)).Acquire(context.Background(), n)
	if err != nil {
		t.Error(err)
	}
	return h
}

// direct returns a client of the store itself.
func (w *world) direct() *holdfast.Client {
	w.Helper()
	c, err := holdfast.New(memlock.New(w.store))
	if err != nil {
		w.Fatalf("%v", err)
	}
	w.Cleanup(func() { _ = c.Close() })
	return c
}

// TestEventAfterAShorterAnswerOfItsServer lets server b tell a client that its place lasts long,
// and then server a that its own lasts a short time. The claim is b's, the event is a's.
func TestEventAfterAShorterAnswerOfItsServer(t *testing.T) {
	bubble(t, func(w *world) {
		d := &unrenewed{Driver: memlock.New(w.store)}
		a, b := http.Handler(w.startOver(w.hosts[0], d)), w.net.servers[w.hosts[1]]
		way := new(splitWay)
		way.to(a, a)
		w.net.set("localhost:7420", way)
		w.hosts = []string{"localhost:7420"}
		holder := w.lock(w.direct(), "n")
		c := w.client()
		d.lost.Store(true)
		waiter := w.lockAsync(c, "n")
		time.Sleep(time.Second)
		way.to(b, a)
		time.Sleep(3 * time.Second) // a renewal has come to b, which has a place now
		way.to(a, a)
		time.Sleep(2500 * time.Millisecond) // a renewal has come to a
		if err := holder.Unlock(); err != nil {
			t.Fatal(err)
		}
		h := <-waiter
		w.kill("localhost:7420")
		refused := http.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
		way.to(refused, refused)
		begun := time.Now()
		next := w.lock(w.direct(), "n")
		if err := h.Err(); err == nil {
			t.Errorf("a stranger holds %v after the event, and the client believes in its hold for %v more", time.Since(begun), time.Until(h.Deadline()))
		}
		_ = next.Unlock()
		time.Sleep(time.Minute)
	})
}

// TestOldServersExpiryEndsNoPermit moves a wait for a permit from server a to b; both
// get one. That of a ends, since nobody asks there: the hold at b goes on.
func TestOldServersExpiryEndsNoPermit(t *testing.T) {
	bubble(t, func(w *world) {
		way, a, b := w.split()
		direct := w.direct()
		all := permitsOf3(t, direct, 3)
		c := w.client()
		got := make(chan *holdfast.Hold, 1)
		go func() { got <- permitsOf3(t, c, 1) }()
		synctest.Wait()
		time.Sleep(time.Second)
		way.to(b, a)
		time.Sleep(3 * time.Second) // a renewal has come to b
		if err := all.Unlock(); err != nil {
			t.Fatal(err)
		}
		h := <-got
		begun := time.Now()
		for range 300 {
			time.Sleep(100 * time.Millisecond)
			if err := h.Err(); err != nil {
				info, _ := direct.Inspect(context.Background(), "s")
				t.Errorf("after %v: %v, and the store has %d holders", time.Since(begun), err, len(info.Holders))
				break
			}
		}
		_ = h.Unlock()
		time.Sleep(time.Minute)
	})
}

// TestOldServersExpiryEndsNoWait is the same with one permit that gets free: the wait
// keeps its place at b, before a stranger's.
func TestOldServersExpiryEndsNoWait(t *testing.T) {
	bubble(t, func(w *world) {
		way, a, b := w.split()
		direct, stranger := w.direct(), w.direct()
		one, two := permitsOf3(t, direct, 1), permitsOf3(t, direct, 2)
		c := w.client()
		order := make(chan string, 2)
		mine := make(chan *holdfast.Hold, 1)
		go func() { h := permitsOf3(t, c, 1); order <- "first"; mine <- h }()
		synctest.Wait()
		time.Sleep(time.Second)
		way.to(b, a)
		time.Sleep(3 * time.Second) // a renewal has come to b
		go func() { h := permitsOf3(t, stranger, 1); order <- "stranger"; time.Sleep(time.Minute); _ = h.Unlock() }()
		time.Sleep(100 * time.Millisecond)
		begun := time.Now()
		if err := one.Unlock(); err != nil {
			t.Fatal(err)
		}
		if who := <-order; who != "first" {
			t.Errorf("%s holds after %v", who, time.Since(begun))
		}
		t.Logf("after %v", time.Since(begun))
		_ = two.Unlock()
		h := <-mine
		_ = h.Unlock()
		time.Sleep(2 * time.Minute)
	})
}

// TestServerThatLostItsPlaceIsLeft cuts a server off from the store while a client
// waits there: it holds by the other server.
func TestServerThatLostItsPlaceIsLeft(t *testing.T) {
	bubble(t, func(w *world) {
		d := newCuttable(w.store)
		w.startOver(w.hosts[0], d)
		holder := w.lock(w.direct(), "n")
		waiter := w.lockAsync(w.client(), "n")
		time.Sleep(time.Second)
		d.cut.Store(true)
		time.Sleep(5 * time.Second)
		_ = holder.Unlock()
		begun := time.Now()
		select {
		case h := <-waiter:
			t.Logf("holds after %v", time.Since(begun))
			d.cut.Store(false)
			_ = h.Unlock()
		case <-time.After(3 * time.Minute):
			t.Errorf("the lock is free, a server serves, and the client waits for %v", time.Since(begun))
			d.cut.Store(false)
			h := <-waiter
			_ = h.Unlock()
		}
		time.Sleep(time.Minute)
	})
}

// TestServerThatLostThePlacesOfPermitsIsLeft is the same for two waits for permits.
func TestServerThatLostThePlacesOfPermitsIsLeft(t *testing.T) {
	bubble(t, func(w *world) {
		d := newCuttable(w.store)
		w.startOver(w.hosts[0], d)
		all := permitsOf3(t, w.direct(), 3)
		got := make(chan *holdfast.Hold, 2)
		for range 2 {
			go func() { got <- permitsOf3(t, w.client(), 1) }()
			synctest.Wait()
		}
		time.Sleep(time.Second)
		d.cut.Store(true)
		time.Sleep(5 * time.Second)
		_ = all.Unlock()
		begun := time.Now()
		for range 2 {
			select {
			case h := <-got:
				t.Logf("holds after %v", time.Since(begun))
				defer h.Unlock()
			case <-time.After(3 * time.Minute):
				t.Errorf("the lock is free, a server serves, and the client waits for %v", time.Since(begun))
				d.cut.Store(false)
				h := <-got
				defer h.Unlock()
			}
		}
		d.cut.Store(false)
		time.Sleep(time.Minute)
	})
}
