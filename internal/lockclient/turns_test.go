package lockclient

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// TestSilentServerIsLeftWithinACall lets a server carry requests out and answer nothing.
// A call about a ticket asks the other one after a sixth of the TTL, however much time the
// core gives it; the release, which follows, breaks what the silent one has.
func TestSilentServerIsLeftWithinACall(t *testing.T) {
	bubble(t, func(w *world) {
		d := w.open()
		defer d.Close()
		ticket := &driver.Ticket{ID: "u:1", Name: "n", Units: 1, Limit: 1, TTL: 9 * time.Second}
		refs := []driver.Ref{{Ticket: ticket, State: driver.Held}}
		calls := []struct {
			name string
			call func(ctx context.Context) (driver.Status, error)
		}{
			{"Join", func(ctx context.Context) (driver.Status, error) { return d.Join(ctx, ticket, true) }},
			{"Renew", func(ctx context.Context) (driver.Status, error) { return first(d.Renew(ctx, refs)) }},
			{"Renew again", func(ctx context.Context) (driver.Status, error) { return first(d.Renew(ctx, refs)) }},
		}
		for i, c := range calls {
			w.net.setSilent(w.hosts[i%2], true)
			w.net.setSilent(w.hosts[1-i%2], false)
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			begun := time.Now()
			st, err := c.call(ctx)
			if err != nil || st.State != driver.Held {
				t.Errorf("%s: %+v, %v", c.name, st, err)
			}
			if took := time.Since(begun); took != 1500*time.Millisecond {
				t.Errorf("%s: the other server was asked after %v", c.name, took)
			}
			cancel()
		}
		if st, err := first(d.Leave(context.Background(), refs)); err != nil || st.State != driver.Held {
			t.Errorf("Leave: %+v, %v", st, err)
		}
		q, err := d.Inspect(context.Background(), "n")
		if err != nil || len(q.Tickets) != 0 {
			t.Errorf("left behind: %+v, %v", q, err)
		}
	})
}

func first(sts []driver.Status, err error) (driver.Status, error) {
	if err != nil {
		return driver.Status{}, err
	}
	return sts[0], sts[0].Err
}

// TestServerThatCannotServeIsLeftWithinACall renews a hold at a server that is cut off from
// the store: the other one renews it in the same call.
func TestServerThatCannotServeIsLeftWithinACall(t *testing.T) {
	bubble(t, func(w *world) {
		cut := newCuttable(w.store)
		w.startOver(w.hosts[0], cut)
		d := w.open()
		defer d.Close()
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		ticket := &driver.Ticket{ID: "u:1", Name: "n", Units: 1, Limit: 1, TTL: 9 * time.Second}
		refs := []driver.Ref{{Ticket: ticket, State: driver.Held}}
		if st, err := d.Join(ctx, ticket, true); err != nil || st.State != driver.Held {
			t.Fatal(st, err)
		}
		cut.cut.Store(true)
		begun := time.Now()
		if st, err := first(d.Renew(ctx, refs)); err != nil || st.State != driver.Held {
			t.Errorf("Renew: %+v, %v", st, err)
		}
		if took := time.Since(begun); took != 9*time.Second/8 {
			t.Errorf("the other server was asked after %v", took)
		}
		cut.cut.Store(false)
		if st, err := first(d.Leave(ctx, refs)); err != nil || st.State != driver.Held {
			t.Errorf("Leave: %+v, %v", st, err)
		}
	})
}

// TestATryIsNotCutShort gives a call a sixth of the TTL, as the core does: a server that takes
// most of that to answer is heard.
func TestATryIsNotCutShort(t *testing.T) {
	bubble(t, func(w *world) {
		server := w.net.servers[w.hosts[0]]
		w.net.set(w.hosts[0], http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPost {
				time.Sleep(1200 * time.Millisecond)
			}
			server.ServeHTTP(out, r)
		}))
		d := w.open()
		defer d.Close()
		ctx, cancel := context.WithTimeout(context.Background(), 1500*time.Millisecond)
		defer cancel()
		ticket := &driver.Ticket{ID: "u:1", Name: "n", Units: 1, Limit: 1, TTL: 9 * time.Second}
		begun := time.Now()
		if st, err := d.Join(ctx, ticket, true); err != nil || st.State != driver.Held {
			t.Errorf("%+v, %v", st, err)
		}
		if took := time.Since(begun); took != 1200*time.Millisecond {
			t.Errorf("the answer took %v", took)
		}
	})
}

// TestOneHostIsAskedTwice joins through a balancer whose first server does not answer.
func TestOneHostIsAskedTwice(t *testing.T) {
	bubble(t, func(w *world) {
		silent := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
		w.net.set("localhost:7420", &inTurn{servers: []http.Handler{silent, w.net.servers[w.hosts[0]]}, next: 1})
		w.hosts = []string{"localhost:7420"}
		d := w.open()
		defer d.Close()
		w.net.servers["localhost:7420"].(*inTurn).next = 0
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		ticket := &driver.Ticket{ID: "u:1", Name: "n", Units: 1, Limit: 1, TTL: 9 * time.Second}
		if st, err := d.Join(ctx, ticket, true); err != nil || st.State != driver.Held {
			t.Errorf("%+v, %v", st, err)
		}
	})
}

// unlucky is a balancer that brings each request to its first server, unless one waits for
// an answer: the requests of others take the turns of the second one. Streams are with the
// second one. A server that is stopped answers nothing.
type unlucky struct {
	servers [2]http.Handler
	stopped atomic.Bool
	waiting atomic.Int64
}

func (b *unlucky) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		b.servers[1].ServeHTTP(w, r)
		return
	}
	defer b.waiting.Add(-1)
	if b.waiting.Add(1) > 1 {
		b.servers[1].ServeHTTP(w, r)
		return
	}
	if b.stopped.Load() {
		<-r.Context().Done()
		return
	}
	b.servers[0].ServeHTTP(w, r)
}

// TestHoldSurvivesAnUnluckyTurn holds through a balancer that would bring every try to a
// server that is stopped, if the client waited for one to end before the next. The other
// server does not know the hold at first, so one call has to renew and to resume there. A
// busy machine takes a while for each answer.
func TestHoldSurvivesAnUnluckyTurn(t *testing.T) {
	for _, took := range []time.Duration{0, 300 * time.Millisecond} {
		bubble(t, func(w *world) {
			straight := w.client()
			b := &unlucky{servers: [2]http.Handler{after(took, w.net.servers[w.hosts[0]]), after(took, w.net.servers[w.hosts[1]])}}
			w.net.set("localhost:7420", b)
			w.hosts = []string{"localhost:7420"}
			h := w.lock(w.client(), "n")
			time.Sleep(time.Second)
			b.stopped.Store(true)
			time.Sleep(2 * time.Minute)
			if err := h.Err(); err != nil {
				t.Errorf("the second server could have kept it: %v", err)
			}
			b.stopped.Store(false)
			if err := h.Unlock(); err != nil {
				t.Errorf("Unlock: %v", err)
			}
			w.wantFree(straight, "n")
		})
	}
}

// after is a handler that answers later.
func after(d time.Duration, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(d)
		h.ServeHTTP(w, r)
	})
}

// TestMissedAnswerOfAJoinIsRemembered releases a hold at the only server that answered: the
// release breaks the ticket that the silent one has, too.
func TestMissedAnswerOfAJoinIsRemembered(t *testing.T) {
	bubble(t, func(w *world) {
		d := w.open()
		defer d.Close()
		ctx := context.Background()
		w.net.setSilent(w.hosts[0], true)
		ticket := &driver.Ticket{ID: "u:1", Name: "n", Units: 1, Limit: 1, TTL: 9 * time.Second}
		if st, err := d.Join(ctx, ticket, true); err != nil || st.State != driver.Held {
			t.Errorf("Join: %+v, %v", st, err)
		}
		if st, err := first(d.Leave(ctx, []driver.Ref{{Ticket: ticket, State: driver.Held}})); err != nil || st.State != driver.Held {
			t.Errorf("Leave: %+v, %v", st, err)
		}
		if q, err := d.Inspect(ctx, "n"); err != nil || len(q.Tickets) != 0 {
			t.Errorf("left behind: %+v, %v", q, err)
		}
	})
}

// TestCallerThatGivesUpKeepsTheServer gives calls up: the server keeps its turn, because
// nobody knows whether it would have answered. A call whose time is over is another case.
func TestCallerThatGivesUpKeepsTheServer(t *testing.T) {
	bubble(t, func(w *world) {
		d := w.open()
		defer d.Close()
		w.net.setSilent(w.hosts[0], true)
		turn := func() int {
			return d.servers.turn()
		}
		ctx, cancel := context.WithCancel(context.Background())
		time.AfterFunc(time.Second, cancel)
		if _, err := d.Inspect(ctx, "n"); !errors.Is(err, context.Canceled) {
			t.Errorf("given up: %v", err)
		}
		if turn() != 0 {
			t.Error("a call that its caller gave up has changed the server")
		}
		ctx, cancel = context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if _, err := d.Inspect(ctx, "n"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("out of time: %v", err)
		}
		if turn() != 1 {
			t.Error("a server that did not answer has kept its turn")
		}
	})
}
