package lockclient

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/lockserver"
	"github.com/holdfast-go/holdfast/memlock"
)

// lossy is a way to a store that may lose its pushes and renewals, as one whose connection
// was reset.
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

// lossyServer is a server whose way to the store may lose pushes.
type lossyServer struct {
	handler *lockserver.Server
	driver  *lossy
}

// startLossy starts all servers anew, so that each has such a way.
func (w *world) startLossy() map[string]*lossyServer {
	w.Helper()
	all := make(map[string]*lossyServer)
	for _, host := range w.hosts {
		d := &lossy{Driver: memlock.New(w.store)}
		all[host] = &lossyServer{w.startOver(host, d), d}
	}
	return all
}

// lockAsync waits for a lock.
func (w *world) lockAsync(c *holdfast.Client, name string) <-chan *holdfast.Hold {
	got := make(chan *holdfast.Hold, 1)
	go func() { got <- w.lock(c, name) }()
	synctest.Wait()
	return got
}

// wantFree fails the test if a ticket of a name is left.
func (w *world) wantFree(c *holdfast.Client, name string) {
	w.Helper()
	time.Sleep(time.Second)
	if info, err := c.Inspect(context.Background(), name); err != nil || len(info.Holders)+len(info.Waiters) != 0 {
		w.Fatalf("left behind: %+v, %v", info, err)
	}
}

// Renew fails while pushes are lost.
func (d *lossy) Renew(ctx context.Context, refs []driver.Ref) ([]driver.Status, error) {
	if d.lost.Load() {
		return nil, driver.Errorf(driver.Unavailable, "connection reset")
	}
	return d.Driver.Renew(ctx, refs)
}

// moveTo leaves only one server reachable.
func (w *world) moveTo(host string, handlers map[string]*lossyServer) {
	for at, s := range handlers {
		if at == host {
			w.net.set(at, s.handler)
		} else {
			w.kill(at)
		}
	}
}

// TestServerThatMissedTheGrant moves a hold to a server where its id still waits, because
// the push of the grant was lost: the store has the hold, so its client keeps it. The grant
// comes at each time between two renewals.
func TestServerThatMissedTheGrant(t *testing.T) {
	for after := time.Duration(0); after < 3*time.Second; after += 250 * time.Millisecond {
		bubble(t, func(w *world) {
			servers := w.startLossy()
			a, b := w.hosts[0], w.hosts[1]
			holder := w.lock(w.client(), "n") // at a
			c := w.client()
			waiter := w.lockAsync(c, "n")
			time.Sleep(time.Second)
			w.moveTo(b, servers)
			time.Sleep(4 * time.Second) // its renewals have come to b, which has a place of it
			w.moveTo(a, servers)
			time.Sleep(2*time.Second + after)
			servers[b].driver.lost.Store(true)
			if err := holder.Unlock(); err != nil {
				t.Fatal(err)
			}
			h := <-waiter
			w.moveTo(b, servers)
			time.Sleep(4 * time.Second) // a renewal comes to b
			if err := h.Err(); err != nil {
				t.Errorf("%v: the store has the hold, and its client was told: %v", after, err)
			}
			servers[b].driver.lost.Store(false)
			time.Sleep(30 * time.Second)
			if err := h.Unlock(); err != nil {
				t.Errorf("%v: Unlock: %v", after, err)
			}
			w.wantFree(c, "n")
		})
	}
}

// TestGrantByEventMovesToAServerThatGaveThePlaceUp moves a hold of which its client knows
// by an event alone to a server that has had a place of it, and gave that up.
func TestGrantByEventMovesToAServerThatGaveThePlaceUp(t *testing.T) {
	bubble(t, func(w *world) {
		servers := w.startLossy()
		a, b := w.hosts[0], w.hosts[1]
		holder := w.lock(w.client(), "n")
		c := w.client()
		w.moveTo(b, servers)
		waiter := w.lockAsync(c, "n")
		time.Sleep(time.Second)
		w.moveTo(a, servers)
		time.Sleep(20 * time.Second) // nobody asks b
		if err := holder.Unlock(); err != nil {
			t.Fatal(err)
		}
		h := <-waiter
		w.moveTo(b, servers)
		time.Sleep(30 * time.Second)
		if err := h.Err(); err != nil {
			t.Fatalf("the store has the hold, and its client was told: %v", err)
		}
		if err := h.Unlock(); err != nil {
			t.Errorf("Unlock: %v", err)
		}
		w.wantFree(c, "n")
	})
}

// TestWaitingIsNoLoss lets a server answer, to the renewal of a hold and to the question
// after that, that its id waits: the hold is in doubt, and not lost.
func TestWaitingIsNoLoss(t *testing.T) {
	bubble(t, func(w *world) {
		d := w.open()
		defer d.Close()
		ctx := context.Background()
		ticket := &driver.Ticket{ID: "u:1", Name: "n", Units: 1, Limit: 1, TTL: 9 * time.Second}
		if st, err := d.Join(ctx, ticket, true); err != nil || st.State != driver.Held {
			t.Fatal(st, err)
		}
		server := w.net.servers[w.hosts[0]]
		w.net.set(w.hosts[0], http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
			out.Header().Set("Holdfast", "1")
			if r.URL.Path == "/v1/renew" {
				_, _ = io.WriteString(out, `{"holds":[{"state":"waiting","left_ms":8000}],"server":"a"}`)
			} else {
				_, _ = io.WriteString(out, `{"state":"waiting","left_ms":8000,"server":"a"}`)
			}
		}))
		sts, err := d.Renew(ctx, []driver.Ref{{Ticket: ticket, State: driver.Held}})
		if err != nil || sts[0].Err == nil || driver.ClassOf(sts[0].Err) != driver.Unknown {
			t.Errorf("%+v, %v", sts, err)
		}
		w.net.set(w.hosts[0], server)
		if sts, err := d.Leave(ctx, []driver.Ref{{Ticket: ticket, State: driver.Held}}); err != nil || sts[0].State != driver.Held {
			t.Errorf("%+v, %v", sts, err)
		}
	})
}

// TestBalancerWithAServerThatIsCutOff reaches two servers by a balancer in turn. One is cut
// off from the store: the renewals come to the other one, which does not know the hold, and
// each question after that to the one that cannot renew it. The hold lasts all the same.
func TestBalancerWithAServerThatIsCutOff(t *testing.T) {
	for _, cut := range []int{0, 1} {
		for before := range 3 { // requests of others, which change whose turn it is
			bubble(t, func(w *world) {
				d := newCuttable(w.store)
				w.startOver(w.hosts[cut], d)
				w.net.set("localhost:7420", &inTurn{servers: []http.Handler{w.net.servers[w.hosts[0]], w.net.servers[w.hosts[1]]}})
				straight := w.client()
				w.hosts = []string{"localhost:7420"}
				c := w.client()
				for range before {
					if _, err := c.Mutex("held").TryLock(context.Background()); err != nil && !errors.Is(err, holdfast.ErrHeld) {
						t.Fatal(err)
					}
				}
				h := w.lock(c, "n")
				time.Sleep(4 * time.Second)
				d.cut.Store(true)
				time.Sleep(30 * time.Second)
				if err := h.Err(); err != nil {
					t.Errorf("server %d is cut off, %d requests before: %v", cut, before, err)
				}
				d.cut.Store(false)
				time.Sleep(5 * time.Second) // requests that were cut off end
				if err := h.Unlock(); err != nil {
					t.Errorf("Unlock: %v", err)
				}
				w.wantFree(straight, "n")
			})
		}
	}
}
