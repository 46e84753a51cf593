package lockclient

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memlock"
)

// bubble runs f in a bubble with a store and two servers.
func bubble(t *testing.T, f func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(newWorld(t, 2)) })
}

func (w *world) lock(c *holdfast.Client, name string) *holdfast.Hold {
	w.Helper()
	h, err := c.Mutex(name, holdfast.WithTTL(9*time.Second)).Lock(context.Background())
	if err != nil {
		w.Fatalf("Lock: %v", err)
	}
	return h
}

// TestHoldOutlivesItsServer kills the server of a hold and of a wait: the hold goes on at
// the other server with its token, and the waiter keeps its place.
func TestHoldOutlivesItsServer(t *testing.T) {
	bubble(t, func(w *world) {
		holder, waiter, late := w.client(), w.client(), w.client()
		h := w.lock(holder, "n")
		token := h.Token()
		order := make(chan string, 2)
		wait := func(c *holdfast.Client, who string) {
			got := w.lock(c, "n")
			order <- who
			_ = got.Unlock()
		}
		go wait(waiter, "first")
		time.Sleep(time.Second)
		go wait(late, "second")
		time.Sleep(time.Second)
		w.kill(w.hosts[0])
		time.Sleep(30 * time.Second) // three TTLs
		if err := h.Err(); err != nil || h.Token() != token {
			t.Fatalf("the hold has ended with its server: %v", err)
		}
		if err := h.Unlock(); err != nil {
			t.Errorf("Unlock at the other server: %v", err)
		}
		if a, b := <-order, <-order; a != "first" || b != "second" {
			t.Errorf("the waiters hold as %s, %s", a, b)
		}
		time.Sleep(time.Second) // the last one unlocks
		info, err := late.Inspect(context.Background(), "n")
		if err != nil || len(info.Holders)+len(info.Waiters) != 0 {
			t.Errorf("left behind: %+v, %v", info, err)
		}
	})
}

// TestDrainedServerIsLeft ends a server in order: its holds are asked for at the other
// one, also where a renewal is under way when the server lets them go.
func TestDrainedServerIsLeft(t *testing.T) {
	for _, patient := range []bool{true, false} {
		t.Run(fmt.Sprintf("patient=%v", patient), func(t *testing.T) {
			bubble(t, func(w *world) {
				c := w.client()
				h := w.lock(c, "n")
				s := w.start(w.hosts[0]) // in place of the first one
				time.Sleep(10 * time.Second)
				ctx, cancel := context.WithCancel(context.Background())
				if !patient {
					cancel()
				}
				if err := s.Drain(ctx); err != nil {
					t.Errorf("Drain: %v", err)
				}
				cancel()
				time.Sleep(30 * time.Second)
				if err := h.Err(); err != nil {
					t.Fatalf("the hold has ended with its server: %v", err)
				}
				w.kill(w.hosts[0])
				if err := h.Unlock(); err != nil {
					t.Errorf("Unlock: %v", err)
				}
			})
		})
	}
}

// inTurn is a balancer that brings each request to the next of its servers. It counts the
// requests, without streams and questions about the servers.
type inTurn struct {
	mu      sync.Mutex
	servers []http.Handler
	next    int
}

func (b *inTurn) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b.mu.Lock()
	s := b.servers[b.next]
	if r.Method == http.MethodPost {
		b.next = (b.next + 1) % len(b.servers)
	}
	b.mu.Unlock()
	s.ServeHTTP(w, r)
}

// TestBalancerInTurn reaches two servers by a balancer: each renewal comes to the server
// that does not know the id, and each request to go on to the one that does. Holds last,
// and waiters keep their places.
func TestBalancerInTurn(t *testing.T) {
	bubble(t, func(w *world) {
		straight := w.client()
		balanced := *w
		balanced.hosts = []string{"localhost:7420"}
		w.net.set(balanced.hosts[0], &inTurn{servers: []http.Handler{w.net.servers[w.hosts[0]], w.net.servers[w.hosts[1]]}})
		h := balanced.lock(balanced.client(), "held")
		time.Sleep(30 * time.Second)
		if err := h.Err(); err != nil {
			t.Errorf("the hold has ended: %v", err)
		}
		if err := h.Unlock(); err != nil {
			t.Errorf("Unlock: %v", err)
		}

		h = w.lock(straight, "n")
		order := make(chan string, 2)
		wait := func(w *world, c *holdfast.Client, who string) {
			got := w.lock(c, "n")
			order <- who
			_ = got.Unlock()
		}
		go wait(&balanced, balanced.client(), "first")
		time.Sleep(time.Second)
		go wait(w, straight, "second")
		time.Sleep(30 * time.Second)
		if err := h.Unlock(); err != nil {
			t.Errorf("Unlock: %v", err)
		}
		if a, b := <-order, <-order; a != "first" || b != "second" {
			t.Errorf("the waiters hold as %s, %s", a, b)
		}
		time.Sleep(time.Second) // the last one unlocks
		if info, err := straight.Inspect(context.Background(), "n"); err != nil || len(info.Holders)+len(info.Waiters) != 0 {
			t.Errorf("left behind: %+v, %v", info, err)
		}
	})
}

// TestServerWithoutItsStoreIsLeft cuts a server off from the store: it still answers, and
// the hold goes on at the other server, as does a release.
func TestServerWithoutItsStoreIsLeft(t *testing.T) {
	for _, renewed := range []bool{true, false} {
		t.Run(fmt.Sprintf("renewed=%v", renewed), func(t *testing.T) {
			bubble(t, func(w *world) {
				d := newCuttable(w.store)
				w.startOver(w.hosts[0], d)
				c := w.client()
				h := w.lock(c, "n")
				d.cut.Store(true)
				if renewed {
					time.Sleep(30 * time.Second) // three TTLs
				}
				if err := h.Err(); err != nil {
					t.Errorf("the hold has ended with its server's way to the store: %v", err)
				}
				if err := h.Unlock(); err != nil {
					t.Errorf("Unlock: %v", err)
				}
				d.cut.Store(false)
				if info, err := c.Inspect(context.Background(), "n"); err != nil || len(info.Holders)+len(info.Waiters) != 0 {
					t.Errorf("left behind: %+v, %v", info, err)
				}
			})
		})
	}
}

// TestLostAnswers lets a server carry requests out, and loses its answers.
func TestLostAnswers(t *testing.T) {
	bubble(t, func(w *world) {
		c := w.client()
		h := w.lock(c, "n")
		w.net.setSilent(w.hosts[0], true)
		time.Sleep(30 * time.Second)
		if err := h.Err(); err != nil {
			t.Fatalf("the hold has ended: %v", err)
		}
		if err := h.Unlock(); err != nil {
			t.Errorf("Unlock: %v", err)
		}
		second := w.lock(c, "n") // no ticket of the silent server is in the way
		if err := second.Unlock(); err != nil {
			t.Errorf("Unlock: %v", err)
		}
	})
}

// TestLossIsTold cuts a client off from all servers: it learns of the loss before another
// holds.
func TestLossIsTold(t *testing.T) {
	bubble(t, func(w *world) {
		c := w.client()
		h := w.lock(c, "n")
		direct, err := holdfast.New(memlock.New(w.store))
		if err != nil {
			t.Fatal(err)
		}
		defer direct.Close()
		for _, host := range w.hosts {
			w.kill(host)
		}
		next := w.lock(direct, "n")
		if h.Err() == nil {
			t.Error("two hold")
		}
		if next.Token() <= h.Token() {
			t.Errorf("tokens %d, %d", h.Token(), next.Token())
		}
		_ = next.Unlock()
	})
}

// TestBreak breaks a hold that two servers have tickets of.
func TestBreak(t *testing.T) {
	bubble(t, func(w *world) {
		c, operator := w.client(), w.client()
		h := w.lock(c, "n")
		first := w.net.servers[w.hosts[0]]
		w.kill(w.hosts[0])
		time.Sleep(4 * time.Second) // the other one has a ticket of it now
		w.net.set(w.hosts[0], first)
		info, err := operator.Inspect(context.Background(), "n")
		if err != nil || len(info.Holders) != 2 {
			t.Fatalf("%+v, %v", info, err)
		}
		if err := operator.Break(context.Background(), "n", info.Holders[0].ID); err != nil {
			t.Fatal(err)
		}
		select {
		case <-h.Context().Done():
		case <-time.After(4 * time.Second): // its next renewal tells
			t.Error("the holder is not told")
		}
		if err := operator.Break(context.Background(), "n", info.Holders[0].ID); !errors.Is(err, holdfast.ErrNoTicket) {
			t.Errorf("a second break: %v", err)
		}
	})
}

// TestInspectTellsTheStoresWord compares what the servers tell with the store's own word.
func TestInspectTellsTheStoresWord(t *testing.T) {
	bubble(t, func(w *world) {
		c := w.client()
		direct, err := holdfast.New(memlock.New(w.store))
		if err != nil {
			t.Fatal(err)
		}
		defer direct.Close()
		ctx := context.Background()
		h := w.lock(c, "a/mutex")
		r, err := c.RWMutex("a/shared").RLock(ctx)
		if err != nil {
			t.Fatal(err)
		}
		p, err := c.Semaphore("b/permits", 5, holdfast.WithNote("close of May")).Acquire(ctx, 2)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"a/mutex", "a/shared", "b/permits", "free"} {
			here, err := c.Inspect(ctx, name)
			if err != nil {
				t.Fatal(err)
			}
			there, err := direct.Inspect(ctx, name)
			if err != nil {
				t.Fatal(err)
			}
			if here.Kind() != there.Kind() || here.Token != there.Token || len(here.Holders) != len(there.Holders) {
				t.Errorf("%+v, and at the store %+v", here, there)
			}
			for i := range here.Holders {
				a, b := here.Holders[i], there.Holders[i]
				if a.ID != b.ID || a.Units != b.Units || a.Token != b.Token || a.Holder.String() != b.Holder.String() {
					t.Errorf("%+v, and at the store %+v", a, b)
				}
			}
		}
		var names []string
		for name, err := range c.Names(ctx, "a/") {
			if err != nil {
				t.Fatal(err)
			}
			names = append(names, name)
		}
		if got := strings.Join(names, " "); got != "a/mutex a/shared" {
			t.Errorf("Names: %s", got)
		}
		if _, err := c.RWMutex("a/mutex").TryLock(ctx); !errors.Is(err, holdfast.ErrKindMismatch) {
			t.Errorf("another kind: %v", err)
		}
		for _, hold := range []*holdfast.Hold{h, r, p} {
			if err := hold.Unlock(); err != nil {
				t.Error(err)
			}
		}
	})
}

// TestOnePermitHoldsAll takes all permits from two goroutines, between which the server
// hands over by itself: the tokens of exclusive holds grow all the same.
func TestOnePermitHoldsAll(t *testing.T) {
	bubble(t, func(w *world) {
		last := uint64(0)
		done := make(chan struct{})
		for range 2 {
			c := w.client()
			go func() {
				defer func() { done <- struct{}{} }()
				for range 10 {
					h, err := c.Semaphore("n", 3).Acquire(context.Background(), 3)
					if err != nil {
						t.Errorf("Acquire: %v", err)
						return
					}
					if h.Token() <= last {
						t.Errorf("token %d after %d", h.Token(), last)
					}
					last = h.Token()
					if err := h.Unlock(); err != nil {
						t.Errorf("Unlock: %v", err)
					}
				}
			}()
		}
		<-done
		<-done
	})
}

// TestAttack25ForeignAnswers refuses what does not come from a server of the same store.
func TestAttack25ForeignAnswers(t *testing.T) {
	for _, tt := range []struct {
		name  string
		b     func(w *world) http.Handler
		class driver.Class
		says  string
	}{
		{"proxy", func(*world) http.Handler {
			return http.HandlerFunc(func(out http.ResponseWriter, _ *http.Request) { _, _ = out.Write([]byte("{}")) })
		}, driver.Unknown, "something else answers"},
		{"text", func(*world) http.Handler {
			return http.HandlerFunc(func(out http.ResponseWriter, _ *http.Request) {
				out.Header().Set("Holdfast", "1")
				_, _ = out.Write([]byte("held"))
			})
		}, driver.Unknown, "no JSON"},
		{"another store", func(w *world) http.Handler {
			w.store = memlock.NewStore()
			return w.start("server-b:7420")
		}, driver.Refused, "its store is not that"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(w *world) {
				d := w.open()
				defer d.Close()
				if _, err := d.Identity(context.Background()); err != nil {
					t.Fatal(err)
				}
				w.kill(w.hosts[0])
				w.net.set(w.hosts[1], tt.b(w))
				ticket := &driver.Ticket{ID: "u:1", Name: "n", Units: 1, Limit: 1, TTL: 9 * time.Second}
				if _, err := d.Join(context.Background(), ticket, true); driver.ClassOf(err) != driver.Unavailable {
					t.Errorf("the dead server: %v", err)
				}
				_, err := d.Join(context.Background(), ticket, true)
				if driver.ClassOf(err) != tt.class || !strings.Contains(err.Error(), tt.says) {
					t.Errorf("%v, want %v and %q", err, tt.class, tt.says)
				}
			})
		})
	}
}

// TestCheck examines servers of which one is away.
func TestCheck(t *testing.T) {
	bubble(t, func(w *world) {
		d := w.open()
		defer d.Close()
		levels := func() string {
			found, err := d.Check(context.Background())
			if err != nil {
				return err.Error()
			}
			var s []string
			for _, f := range found {
				if f.Level != driver.OK {
					s = append(s, f.Topic+" "+f.Level.String())
				}
			}
			return strings.Join(s, ", ")
		}
		if got := levels(); got != "" {
			t.Errorf("both there: %s", got)
		}
		w.kill(w.hosts[1])
		if got := levels(); got != "server server-b:7420 warning" {
			t.Errorf("one away: %s", got)
		}
		w.kill(w.hosts[0])
		if got := levels(); !strings.Contains(got, "connection refused") {
			t.Errorf("both away: %s", got)
		}
	})
}

// TestEndOfWatchingKeepsTheTurn ends the events of a driver, as the core does before a close
// leaves its tickets: the server that has these is asked still, and no other one.
func TestEndOfWatchingKeepsTheTurn(t *testing.T) {
	bubble(t, func(w *world) {
		d := w.open()
		defer d.Close()
		at := d.servers.turn()
		ctx, stop := context.WithCancel(context.Background())
		if err := d.Watch(ctx, func(string, driver.Status) {}); err != nil {
			t.Fatal(err)
		}
		stop()
		synctest.Wait()
		if now := d.servers.turn(); now != at {
			t.Errorf("the turn went from server %d to %d", at, now)
		}
	})
}
