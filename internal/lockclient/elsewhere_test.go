package lockclient

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memlock"
)

// switched is a balancer that brings streams to one server and other requests to another,
// unless it is cut.
type switched struct {
	events, requests http.Handler
	toEvents         atomic.Bool // requests come to the server of the streams
	cut              atomic.Bool // requests are refused
}

func (b *switched) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.URL.Path == "/v1/events" || b.toEvents.Load():
		b.events.ServeHTTP(w, r)
	case b.cut.Load():
		http.Error(w, "cut", http.StatusBadGateway)
	default:
		b.requests.ServeHTTP(w, r)
	}
}

// TestEventOfAnotherServerIsNotBelieved lets a client wait behind a balancer at one server,
// which then has its events alone, and go on with the wait at another one. The first one
// tells of the grant, and keeps the place for a TTL after what it has heard last; the second
// one has told the client that its place is kept for longer, and gives a grant back of which
// it could send nothing. The client is cut off before the grant, or once it holds: when
// somebody else holds, it does not.
func TestEventOfAnotherServerIsNotBelieved(t *testing.T) {
	for _, before := range []bool{true, false} {
		bubble(t, func(w *world) {
			b := &switched{events: w.net.servers[w.hosts[0]], requests: w.net.servers[w.hosts[1]]}
			w.net.set("localhost:7420", b)
			w.hosts = []string{"localhost:7420"}
			straight, err := holdfast.New(memlock.New(w.store))
			if err != nil {
				t.Fatal(err)
			}
			defer straight.Close()
			first := w.lock(straight, "n")
			c := w.client()
			b.toEvents.Store(true)
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			got := make(chan *holdfast.Hold, 1)
			go func() {
				h, err := c.Mutex("n", holdfast.WithTTL(9*time.Second)).Lock(ctx)
				if err != nil && !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
				got <- h
			}()
			time.Sleep(time.Second)
			b.toEvents.Store(false)
			time.Sleep(5500 * time.Millisecond) // its renewals have come to the second server
			stranger := w.lockAsync(straight, "n")
			b.cut.Store(before)
			if err := first.Unlock(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(100 * time.Millisecond)
			b.cut.Store(true)
			granted := <-stranger
			cancel()
			if h := <-got; h != nil && h.Err() == nil {
				t.Errorf("cut off before the grant: %v: two hold, by tokens %d and %d", before, h.Token(), granted.Token())
			} else if h == nil && !before {
				t.Error("the client did not hold before it was cut off")
			}
			if err := granted.Unlock(); err != nil {
				t.Error(err)
			}
			b.cut.Store(false)
			synctest.Wait()
		})
	}
}

// foreign is a server with a name of its own that has one answer for each path of requests
// about ids, and refuses them after that. All else another server answers.
type foreign struct {
	http.Handler
	mu      sync.Mutex
	answers map[string]string
}

func (f *foreign) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		f.Handler.ServeHTTP(w, r)
		return
	}
	f.mu.Lock()
	answer, ok := f.answers[r.URL.Path]
	delete(f.answers, r.URL.Path)
	f.mu.Unlock()
	w.Header().Set("Holdfast", "1")
	if !ok {
		w.WriteHeader(http.StatusServiceUnavailable)
		answer = `{"server":"foreign","code":"store_unknown"}`
	}
	_, _ = w.Write([]byte(answer))
}

// TestGrantFoundElsewhereIsRenewedFirst lets a client wait at one server, and find its grant
// at another, with a claim that is nearly over. The claim on the place lasts longer, and is
// not that server's: without a renewal, neither a Join nor a Renew answers that it holds.
func TestGrantFoundElsewhereIsRenewedFirst(t *testing.T) {
	const held = `"state":"held","token":512,"left_ms":200`
	bubble(t, func(w *world) {
		straight, err := holdfast.New(memlock.New(w.store))
		if err != nil {
			t.Fatal(err)
		}
		defer straight.Close()
		holder := w.lock(straight, "n")
		real := w.net.servers[w.hosts[0]]
		w.hosts = []string{"localhost:7420"}
		w.net.set(w.hosts[0], real)
		ctx := context.Background()
		for _, again := range []bool{true, false} {
			d := w.open()
			tk := &driver.Ticket{ID: "0123:7", Name: "n", Units: 1, Limit: 1, TTL: 9 * time.Second}
			if st, err := d.Join(ctx, tk, true); err != nil || st.State != driver.Waiting {
				t.Fatalf("Join: %+v, %v", st, err)
			}
			f := &foreign{Handler: real, answers: map[string]string{"/v1/acquire": `{"server":"foreign",` + held + `}`}}
			ask := func() (driver.Status, error) { return d.Join(ctx, tk, true) }
			if !again {
				f.answers = map[string]string{"/v1/renew": `{"server":"foreign","holds":[{"id":"x",` + held + `}]}`}
				ask = func() (driver.Status, error) {
					return first(d.Renew(ctx, []driver.Ref{{Ticket: tk, State: driver.Waiting}}))
				}
			}
			w.net.set(w.hosts[0], f)
			if st, err := ask(); err == nil || driver.ClassOf(err) != driver.Unknown {
				t.Errorf("again=%v: %+v, %v: want an unknown outcome", again, st, err)
			}
			w.net.set(w.hosts[0], real)
			if sts, err := d.Leave(ctx, []driver.Ref{{Ticket: tk}}); err != nil || sts[0].Err != nil {
				t.Errorf("Leave: %+v, %v", sts, err)
			}
			_ = d.Close()
		}
		if err := holder.Unlock(); err != nil {
			t.Error(err)
		}
	})
}
