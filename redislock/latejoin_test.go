package redislock

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
	"github.com/holdfast-go/holdfast/redislock/internal/wire"
)

// TestJoinThatArrivesAfterItsLeave checks that a join which was given up and
// arrives after the leave that followed it, on another connection, takes no place:
// the lock is free for others, and is not held by nobody until a TTL is over. Lone
// requests and requests that meet have connections of their own, so this needs no
// connection that breaks.
func TestJoinThatArrivesAfterItsLeave(t *testing.T) {
	t.Parallel()
	s := servers.Redis(t, servers.RedisOptions{})
	w := newTap(t, s)
	d, err := Open(t.Context(), strings.Replace(s.URL(""), s.Addr(), w.l.Addr().String(), 1))
	if err != nil {
		t.Fatal(err)
	}
	c, err := holdfast.New(d, holdfast.WithTTL(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	other := enter(t, s, "")
	cycle := func(name string) {
		h, err := c.Mutex(name).Lock(t.Context())
		if err == nil {
			err = h.Unlock()
		}
		if err != nil {
			t.Error(err)
		}
	}
	for _, lone := range []bool{false, true} {
		name := "in the connection of crowds"
		if lone {
			name = "in the connection of lone requests"
		}
		t.Run(name, func(t *testing.T) {
			var group sync.WaitGroup
			for _, name := range []string{"a", "b", "c", "d"} {
				group.Go(func() {
					for range 100 {
						cycle(name)
					}
				})
			}
			group.Wait()
			if lone {
				for range 200 {
					cycle("a")
				}
			}
			lost := &cut{script: plainScripts.Join, late: make(chan struct{})}
			w.arm(lost)
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			if h, err := c.Mutex(name).Lock(ctx); err == nil {
				t.Fatalf("%v holds by a join that has not arrived", h)
			}
			<-lost.met
			eventually(t, "the ticket has left", func() bool { return s.Do(t, "EXISTS", keysOf(name)[wire.KeyTickets]) == int64(1) })
			close(lost.late)
			for range 20 { // as long as the join is under way
				q, err := other.Inspect(other.ctx(), name)
				if err != nil || len(q.Tickets) > 0 {
					t.Fatalf("the late join has a place: %v, %v", q.Tickets, err)
				}
				time.Sleep(5 * time.Millisecond)
			}
			next := other.ticket(name)
			other.take(next, driver.Held)
			other.leaves(next, driver.Held)
		})
	}
}
