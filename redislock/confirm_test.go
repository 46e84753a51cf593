package redislock

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/backends"
)

// A grant that the replica never heard of is granted again after a
// failover, to somebody else while the first believes in it; the token is
// greater, so a guard refuses the first. With min_replicas it is not shown.
//
// Covers: F28, F29 on redis, sentinel.
func TestF29_DoubleGrant(t *testing.T) {
	t.Parallel()
	for _, query := range []string{"", "min_replicas=1&min_replicas_timeout=200ms"} {
		t.Run(query, func(t *testing.T) {
			t.Parallel()
			c := backends.RedisClusterOf(t, backends.RedisClusterOptions{})
			a, b := listen(t, openCluster(t, c, "timeout=2s&"+query)), listen(t, openCluster(t, c, "timeout=2s&"+query))
			const name = "n"
			old := c.Primary(t, slotOf(name))
			replica := c.Replica(old)

			// As long as the replica is there, a grant is shown with and without.
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
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
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
				return // nobody else can confirm it, either: there is no replica
			}
			// The first has not been told, and its lease has most of 30 s to go.
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

// A grant that comes by push or is found by a renewal is confirmed like any, and
// given back like any.
func TestUnconfirmedPush(t *testing.T) {
	t.Parallel()
	s := backends.Redis(t, backends.RedisOptions{})
	replica := backends.Redis(t, backends.RedisOptions{Args: []string{"--replicaof", "127.0.0.1", portOf(s), "--repl-diskless-sync-delay", "0"}})
	eventually(t, "the replica is there", func() bool {
		return replica.Info(t, "replication", "master_link_status") == "up"
	})
	const query = "min_replicas=1&min_replicas_timeout=200ms"
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

	// Who hears no push finds the grant by asking.
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
	// And for a lock that nobody else wants, all the while.
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

// confirmed is how many tickets a driver remembers to have been confirmed.
func (m *member) confirmed() int {
	c := m.examinable.(*Driver).confirms
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.verdicts) + len(c.waiting)
}

func portOf(s *backends.RedisServer) string { return s.Addr()[len("127.0.0.1:"):] }
