package redislock

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
)

// calls has the number of times that the server ran each command that a
// request may be.
type calls struct{ evalsha, eval, publish, other int }

// count returns the commands that the server ran while f did. Commands within
// scripts count as well, so count looks only at commands that scripts do not
// call, and at PUBLISH. The server must be the test's own.
func count(t *testing.T, s *servers.RedisServer, f func()) calls {
	t.Helper()
	s.Do(t, "CONFIG", "RESETSTAT")
	f()
	stats := s.Do(t, "INFO", "commandstats").(string)
	var c calls
	for line := range strings.Lines(stats) {
		name, rest, _ := strings.Cut(strings.TrimPrefix(line, "cmdstat_"), ":calls=")
		var n int
		fmt.Sscanf(rest, "%d", &n)
		switch name {
		case "evalsha":
			c.evalsha += n
		case "eval":
			c.eval += n
		case "publish", "spublish":
			c.publish += n
		case "hello", "select", "subscribe", "script|load":
			c.other += n
		}
	}
	return c
}

func TestCountUncontended(t *testing.T) {
	s := servers.Redis(t, servers.RedisOptions{})
	m := enter(t, s, "")
	cycle := func() {
		k := m.ticket("n")
		m.take(k, driver.Held)
		m.leaves(k, driver.Held)
	}
	cycle() // the server learns the scripts
	const n = 50
	if got := count(t, s, func() {
		for range n {
			cycle()
		}
	}); got != (calls{evalsha: 2 * n}) {
		t.Errorf("%d times lock and unlock are %+v", n, got)
	}
}

func TestCountContended(t *testing.T) {
	for _, n := range []int{2, 16, 64, 256} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			s := servers.Redis(t, servers.RedisOptions{})
			members := make([]*member, n)
			for i := range members {
				members[i] = enter(t, s, "")
			}
			k := members[0].ticket("warm")
			members[0].take(k, driver.Held)
			members[0].leaves(k, driver.Held)

			first := members[0].ticket("n")
			members[0].take(first, driver.Held)
			waiting := make([]*driver.Ticket, n)
			got := count(t, s, func() {
				for i, m := range members {
					waiting[i] = m.ticket("n")
					m.take(waiting[i], driver.Waiting)
				}
				members[0].leaves(first, driver.Held)
				for i, m := range members {
					m.granted(waiting[i])
					for j, other := range members {
						if j != i && len(other.heard(waiting[i].ID)) > 0 {
							t.Errorf("client %d hears of the grant to client %d", j, i)
						}
					}
					m.leaves(waiting[i], driver.Held)
				}
			})
			// One join and one push for each, and one leave for each and the
			// first.
			if want := (calls{evalsha: 2*n + 1, publish: n}); got != want {
				t.Errorf("%d acquisitions are %+v, want %+v", n, got, want)
			}
			for i, m := range members {
				if got := len(m.pushes); got != 1 || len(m.heard(waiting[i].ID)) != 1 {
					t.Errorf("client %d was woken %d times", i, got)
				}
			}
		})
	}
}

func TestCountRenewal(t *testing.T) {
	s := servers.Redis(t, servers.RedisOptions{})
	m, other := enter(t, s, ""), enter(t, s, "")
	var held, mixed []driver.Ref
	for i := range 200 {
		name := fmt.Sprint("n", i)
		k := m.ticket(name)
		m.take(k, driver.Held)
		held = append(held, ref(k))
		if i%2 == 0 {
			mixed = append(mixed, ref(k))
			continue
		}
		w := other.ticket(name)
		other.take(w, driver.Waiting)
		mixed = append(mixed, driver.Ref{Ticket: w, State: driver.Waiting})
	}
	renew := func(refs []driver.Ref, want func(i int) driver.State) {
		ps, err := m.Renew(m.ctx(), refs)
		if err != nil {
			t.Fatal(err)
		}
		for i, p := range ps {
			if p.Err != nil || p.State != want(i) {
				t.Fatalf("ticket %d: %v, %v", i, p.State, p.Err)
			}
		}
	}
	allHeld := func(int) driver.State { return driver.Held }
	renew(held, allHeld)
	for what, f := range map[string]func(){
		"held": func() { renew(held, allHeld) },
		"mixed": func() {
			renew(mixed, func(i int) driver.State {
				return map[bool]driver.State{true: driver.Held, false: driver.Waiting}[i%2 == 0]
			})
		},
	} {
		if got := count(t, s, f); got != (calls{evalsha: 1}) {
			t.Errorf("renewal of 200 tickets (%s) is %+v", what, got)
		}
	}
}

// TestCountOfLocks counts the requests of the core's locks, as users have
// them, without the test's help.
func TestCountOfLocks(t *testing.T) {
	for _, n := range []int{1, 2, 16, 64, 256} {
		s := servers.Redis(t, servers.RedisOptions{})
		var clients []*holdfast.Client
		for range n {
			c, err := holdfast.New(openOn(t, s, ""), holdfast.WithTTL(10*time.Minute)) // no renewals
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			clients = append(clients, c)
		}
		ctx, cancel := context.WithTimeout(context.Background(), 4*patience)
		defer cancel()
		turn := func(c *holdfast.Client) {
			hold, err := c.Mutex("n").Lock(ctx)
			if err != nil {
				t.Error(err)
				return
			}
			if err := hold.Unlock(); err != nil {
				t.Error(err)
			}
		}
		for _, c := range clients {
			turn(c) // connects, subscribes, and makes the server learn the scripts
		}
		const rounds = 10
		got := count(t, s, func() {
			var wg sync.WaitGroup
			for _, c := range clients {
				wg.Go(func() {
					for range rounds {
						turn(c)
					}
				})
			}
			wg.Wait()
		})
		if got.evalsha != 2*n*rounds || got.eval != 0 || got.publish > n*rounds || got.other != 0 {
			t.Errorf("%d clients: %d acquisitions are %+v", n, n*rounds, got)
		}
		if n == 1 && got.publish != 0 {
			t.Errorf("%d messages for a lock that nobody waits for", got.publish)
		}
	}
}

// TestCountNothingAfterContextEnd checks that a request whose context is over
// is not sent.
func TestCountNothingAfterContextEnd(t *testing.T) {
	s := servers.Redis(t, servers.RedisOptions{})
	m := enter(t, s, "")
	k := m.ticket("n")
	m.take(k, driver.Held)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	late, stop := context.WithDeadline(context.Background(), time.Now().Add(-time.Second))
	defer stop()
	if got := count(t, s, func() {
		for _, ctx := range []context.Context{ctx, late} {
			_, err := m.Join(ctx, m.ticket("n"), true)
			if driver.ClassOf(err) != driver.NotDone {
				t.Errorf("Join: %v", err)
			}
			_, err = m.Renew(ctx, []driver.Ref{ref(k)})
			if driver.ClassOf(err) != driver.NotDone {
				t.Errorf("Renew: %v", err)
			}
			_, err = m.Leave(ctx, []driver.Ref{ref(k)})
			if driver.ClassOf(err) != driver.NotDone {
				t.Errorf("Leave: %v", err)
			}
		}
	}); got != (calls{}) {
		t.Errorf("requests after their context's end are %+v", got)
	}
}
