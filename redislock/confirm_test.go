package redislock

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
)

// TestF29_DoubleGrant checks that a grant which never reached the replica is
// granted again after a failover, to another client, while the first client
// believes that it holds. The second token is greater, so a guard refuses the
// first client. With min_replicas the first grant is not shown.
//
// Covers: F28, F29 on redis, sentinel.
func TestF29_DoubleGrant(t *testing.T) {
	t.Parallel()
	// A replica that does not stand still answers in five seconds.
	for query, options := range map[string]string{"": "timeout=2s", "min_replicas=1": "timeout=20s&min_replicas=1&min_replicas_timeout=5s"} {
		t.Run(query, func(t *testing.T) {
			t.Parallel()
			c := servers.RedisClusterOf(t, servers.RedisClusterOptions{NodeTimeout: 5 * time.Second})
			a, b := listen(t, openCluster(t, c, options)), listen(t, openCluster(t, c, options))
			const name = "n"
			old := c.Primary(t, slotOf(name))
			replica := c.Replica(old)

			// As long as the replica runs, a grant is shown with min_replicas
			// and without.
			before := a.ticket(name)
			last := a.take(before, driver.Held).Token
			waits := b.ticket(name)
			b.take(waits, driver.Waiting)
			a.leaves(before, driver.Held)
			last = max(last, b.granted(waits).Token)
			b.leaves(waits, driver.Held)
			inStep(t, old)

			cutOff(t, old, replica)
			first := a.ticket(name)
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			p, err := a.Join(ctx, first, true)
			if query != "" {
				if !errors.Is(err, ErrUnconfirmed) || driver.ClassOf(err) != driver.Unavailable {
					t.Fatalf("without a replica: %v, %v", p.State, err)
				}
				if line, err := a.Inspect(a.ctx(), name); err != nil || len(line.Tickets) != 0 {
					t.Errorf("what was not confirmed has not been given back: %+v, %v", line.Tickets, err)
				}
			} else if err != nil || p.State != driver.Held || p.Token <= last {
				t.Fatalf("%v with token %d after %d, %v", p.State, p.Token, last, err)
			}
			last = max(last, p.Token)
			old.Crash(t)
			replica.Resume(t)
			c.AwaitPrimary(t, replica)
			if query != "" {
				return // no other client can confirm the grant, either: there is no replica
			}
			// The grant was not shown to the first client, and its lease has
			// most of 30 s to go.
			second := b.ticket(name)
			if p := b.joins(second); p.State != driver.Held || p.Token <= last {
				t.Errorf("the second is %v with token %d after %d", p.State, p.Token, last)
			}
			if s := a.settles(first).State; s != driver.Gone {
				t.Errorf("the first is %v when it asks", s)
			}
		})
	}
}

// TestPushedGrantIsConfirmed checks that a grant by push, and one found by a
// renewal, is confirmed, or given back, like every other.
func TestPushedGrantIsConfirmed(t *testing.T) {
	t.Parallel()
	s := servers.Redis(t, servers.RedisOptions{})
	replica := servers.Redis(t, servers.RedisOptions{Args: []string{"--replicaof", "127.0.0.1", portOf(s), "--repl-diskless-sync-delay", "0"}})
	eventually(t, "the replica is there", func() bool {
		return replica.Info(t, "replication", "master_link_status") == "up"
	})
	const query = "timeout=10s&min_replicas=1&min_replicas_timeout=4s" // for a replica on a busy machine
	a, b := enter(t, s, query), enter(t, s, query)
	held, waits, next := a.ticket("n"), b.ticket("n"), enter(t, s, "").ticket("n")
	a.take(held, driver.Held)
	b.take(waits, driver.Waiting)
	cutOff(t, s, replica)
	a.leaves(held, driver.Held)
	eventually(t, "it is told that it is gone", func() bool {
		for _, p := range b.heard(waits.ID) {
			if p.State == driver.Held {
				t.Fatal("a grant without a replica is shown")
			}
			if p.State == driver.Gone {
				return true
			}
		}
		return false
	})
	b.keeps(waits, driver.Gone)

	// A client without pushes finds the grant by a renewal.
	deaf := quiet(t, openOn(t, s, query))
	plain := enter(t, s, "")
	plain.take(next, driver.Held)
	k := deaf.ticket("n")
	deaf.take(k, driver.Waiting)
	plain.leaves(next, driver.Held)
	ps, err := deaf.Renew(deaf.ctx(), []driver.Ref{{Ticket: k, State: driver.Waiting}})
	if err != nil || ps[0].Err != nil || ps[0].State != driver.Gone {
		t.Errorf("%+v, %v", ps, err)
	}

	replica.Resume(t)
	eventually(t, "with the replica there are grants again", func() bool {
		k := a.ticket("n")
		p, err := a.Join(a.ctx(), k, false)
		if err == nil && p.State == driver.Held {
			a.leaves(k, driver.Held)
			return true
		}
		return false
	})
	// The same for a lock that no other client wants, all the while.
	for range 20 {
		k := a.ticket("n")
		a.take(k, driver.Held)
		a.keeps(k, driver.Held)
		a.leaves(k, driver.Held)
	}
	if a.confirmed() != 0 {
		t.Errorf("%d tickets that left are remembered", a.confirmed())
	}
}

// TestF118_LossesAreForgotten checks that a ticket which the store lost is
// forgotten with the request, or the push, that reports the loss.
//
// Covers: F118 on redis.
func TestF118_LossesAreForgotten(t *testing.T) {
	t.Parallel()
	s := servers.Redis(t, servers.RedisOptions{})
	replica := servers.Redis(t, servers.RedisOptions{Args: []string{"--replicaof", "127.0.0.1", portOf(s)}})
	eventually(t, "the replica follows", func() bool { return replica.Info(t, "replication", "master_link_status") == "up" })
	m := enter(t, s, "timeout=20s&min_replicas=1&min_replicas_timeout=10s")
	var refs []driver.Ref
	for i := range 30 {
		k, w := m.ticket(fmt.Sprint("n", i)), m.ticket(fmt.Sprint("n", i))
		m.take(k, driver.Held)
		m.take(w, driver.Waiting)
		refs = append(refs, ref(k), driver.Ref{Ticket: w, State: driver.Waiting})
	}
	broken := m.ticket("broken")
	m.take(broken, driver.Held)
	if n := m.confirmed(); n < 31 {
		t.Fatalf("%d of 31 holds were confirmed", n)
	}
	if err := m.Break(m.ctx(), broken.Name, broken.ID); err != nil {
		t.Fatal(err)
	}
	s.Do(t, "FLUSHALL")
	ps, err := m.Renew(m.ctx(), refs)
	if err != nil {
		t.Fatal(err)
	}
	for i, p := range ps {
		if p.Err != nil || p.State != driver.Gone {
			t.Errorf("ticket %d: %+v", i, p)
		}
	}
	eventually(t, "nothing of them is remembered", func() bool { return m.confirmed() == 0 })
}

// confirmed returns the number of tickets that a driver remembers as
// confirmed.
func (m *member) confirmed() int {
	return m.examinable.(*Driver).server.Confirms.Remembered()
}

func portOf(s *servers.RedisServer) string { return s.Addr()[len("127.0.0.1:"):] }
