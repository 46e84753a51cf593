package redislock

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
	"github.com/holdfast-go/holdfast/redislock/internal/wire"
)

// slotOf returns the slot of a lock's queue.
func slotOf(name string) int { return wire.Slot(DefaultPrefix + name) }

// settles renews a ticket until the store answers, and returns its status.
func (m *member) settles(k *driver.Ticket) (p driver.Status) {
	m.t.Helper()
	eventually(m.t, "the store answers again", func() bool {
		ps, err := m.Renew(m.ctx(), []driver.Ref{ref(k)})
		if err != nil {
			m.t.Fatal(err)
		}
		if cl := driver.ClassOf(ps[0].Err); ps[0].Err != nil && cl == driver.Refused {
			m.t.Fatalf("class %v: %v", cl, ps[0].Err)
		}
		p = ps[0]
		return p.Err == nil
	})
	return p
}

// joins joins until the store answers.
func (m *member) joins(k *driver.Ticket) (p driver.Status) {
	m.t.Helper()
	eventually(m.t, "a join is answered", func() bool {
		var err error
		p, err = m.Join(m.ctx(), k, true)
		if err != nil && driver.ClassOf(err) == driver.Refused {
			m.t.Fatal(err)
		}
		return err == nil
	})
	return p
}

// left repeats a ticket's Leave until the store answers.
func (m *member) left(k *driver.Ticket) driver.State {
	m.t.Helper()
	var p driver.Status
	eventually(m.t, "a leave is answered", func() bool {
		ps, err := m.Leave(m.ctx(), []driver.Ref{ref(k)})
		if err == nil {
			p, err = ps[0], ps[0].Err
		}
		return err == nil
	})
	return p.State
}

// outlasts waits until the promoted replica renews a hold with its token, and
// then releases the hold.
func (m *member) outlasts(held *driver.Ticket, token uint64) {
	m.t.Helper()
	eventually(m.t, "the replica is asked", func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		ps, err := m.Renew(ctx, []driver.Ref{ref(held)})
		return err == nil && ps[0].Err == nil && ps[0].State == driver.Held && ps[0].Token == token
	})
	if s := m.left(held); s != driver.Held {
		m.t.Errorf("the holder was %v", s)
	}
}

// woken waits until a waiter holds: by a push, or by a renewal after a gap or
// where there are no pushes.
func (m *member) woken(k *driver.Ticket, gaps int) driver.Status {
	m.t.Helper()
	var p driver.Status
	eventually(m.t, "a waiter is woken", func() bool {
		for _, p = range m.heard(k.ID) {
			if p.State == driver.Held {
				return true
			}
		}
		if len(m.heard("")) > gaps || !m.Traits().Push {
			gaps = len(m.heard(""))
			p = m.settles(k)
			return p.State == driver.Held
		}
		return false
	})
	return p
}

// TestClusterCountsOfRequests counts requests. An uncontended lock takes two
// scripts. A contended one takes one push more, or, before Redis 7, one
// renewal. The first wait in a slot takes one request more.
func TestClusterCountsOfRequests(t *testing.T) {
	t.Parallel()
	c := servers.RedisClusterOf(t, servers.RedisClusterOptions{NodeTimeout: time.Minute, NoReplicas: true})
	a, b := listen(t, openCluster(t, c, "")), listen(t, openCluster(t, c, ""))
	const n = 30
	asks, pushes := 0, n // one for each hand-off
	if !a.Traits().Push {
		asks, pushes = n, 0
	}
	cycle := func(name string) {
		k := a.ticket(name)
		a.take(k, driver.Held)
		a.leaves(k, driver.Held)
	}
	turn := func(name string) {
		ka, kb := a.ticket(name), b.ticket(name)
		a.take(ka, driver.Held)
		b.take(kb, driver.Waiting)
		a.leaves(ka, driver.Held)
		b.granted(kb)
		b.leaves(kb, driver.Held)
	}
	of := func(f func()) (n calls) {
		counts := make([]calls, len(c.Nodes))
		g := f
		for i, s := range c.Nodes {
			inner := g
			g = func() { counts[i] = count(t, s, inner) }
		}
		g()
		for _, k := range counts {
			n.evalsha, n.eval, n.publish, n.other = n.evalsha+k.evalsha, n.eval+k.eval, n.publish+k.publish, n.other+k.other
		}
		return n
	}
	for i := range n {
		cycle(fmt.Sprint("n", i)) // the scripts become known, and connections are made
	}
	turn("n0")
	if got := of(func() {
		for i := range n {
			cycle(fmt.Sprint("n", i))
		}
	}); got != (calls{evalsha: 2 * n}) {
		t.Errorf("%d times lock and unlock are %+v", n, got)
	}
	if got := of(func() {
		for range n {
			turn("n0")
		}
	}); got != (calls{evalsha: 4*n + asks, publish: pushes}) {
		t.Errorf("%d hand-overs are %+v", n, got)
	}
	var refs []driver.Ref
	slots := make(map[int]bool)
	for i := range 100 {
		k := a.ticket(fmt.Sprint("held", i))
		a.take(k, driver.Held)
		refs = append(refs, ref(k))
		slots[slotOf(k.Name)] = true
	}
	must(a.Renew(a.ctx(), refs))
	if got := of(func() {
		ps, err := a.Renew(a.ctx(), refs)
		for i, p := range ps {
			if err != nil || p.Err != nil || p.State != driver.Held {
				t.Fatalf("ticket %d: %v, %v, %v", i, p.State, p.Err, err)
			}
		}
	}); got != (calls{evalsha: len(slots)}) {
		t.Errorf("renewal of 100 tickets in %d slots is %+v", len(slots), got)
	}
}

// TestF31_ClusterReshard moves a slot to another node, step by step, while its
// locks are held and waited for.
//
// Covers: F31, F36 on cluster.
func TestF31_ClusterReshard(t *testing.T) {
	t.Parallel()
	c := servers.RedisClusterOf(t, servers.RedisClusterOptions{NodeTimeout: time.Minute, NoReplicas: true})
	a, b := listen(t, openCluster(t, c, "")), listen(t, openCluster(t, c, ""))
	const name = "moved"
	n := slotOf(name)
	from := c.Primary(t, n)
	to := c.Nodes[0]
	if from == to {
		to = c.Nodes[1]
	}
	// Two locks in the slot: one with waiters, one that is merely held; and a
	// semaphore with all its keys.
	held, waits := a.ticket(name), b.ticket(name)
	lone := a.ticket("{" + DefaultPrefix + name + "}")
	if slotOf(lone.Name) != n {
		lone.Name = fmt.Sprintf("{%d}", wire.TagOf(n))
	}
	first := a.take(held, driver.Held).Token
	a.take(lone, driver.Held)
	b.take(waits, driver.Waiting)
	many, next := a.ticket(fmt.Sprintf("many{%d}", wire.TagOf(n))), b.ticket(fmt.Sprintf("many{%d}", wire.TagOf(n)))
	many.Limit, many.Units, next.Limit, next.Units = 3, 3, 3, 1
	a.take(many, driver.Held)
	b.take(next, driver.Waiting)
	gone := b.ticket(many.Name)
	gone.Limit = 3
	if _, err := b.Leave(b.ctx(), []driver.Ref{{Ticket: gone, JoinPending: true}}); err != nil { // a tombstone: now all keys exist
		t.Fatal(err)
	}

	putOff := func(what string, err error) {
		t.Helper()
		if driver.ClassOf(err) != driver.Unavailable {
			t.Errorf("%s while the slot is moved: %v", what, err)
		}
	}
	midway := func() {
		t.Helper()
		for range 2 { // a held mutex stays held, however long the move takes
			for i, p := range must(a.Renew(a.ctx(), []driver.Ref{ref(held), ref(lone)})) {
				if p.Err != nil || p.State != driver.Held {
					t.Errorf("a hold while the slot is moved: %d is %v, %v", i, p.State, p.Err)
				}
			}
		}
		_, err := b.Join(b.ctx(), b.ticket(name), true)
		putOff("a join", err)
		_, err = b.Join(b.ctx(), b.ticket(fmt.Sprintf("new{%d}", wire.TagOf(n))), true)
		putOff("a join of a new line", err)
		putOff("a release", must(a.Leave(a.ctx(), []driver.Ref{ref(many)}))[0].Err)
		putOff("a renewal of many keys", must(b.Renew(b.ctx(), []driver.Ref{{Ticket: waits, State: driver.Waiting}}))[0].Err)
	}
	c.BeginMove(t, n, to)
	midway()
	c.MoveKeys(t, n, 4, to)
	midway()
	c.MoveKeys(t, n, 100, to)
	midway()
	gaps := len(b.heard(""))
	c.FinishMove(t, n, to)
	if s := a.left(held); s != driver.Held {
		t.Errorf("the holder was %v", s)
	}
	if p := b.woken(waits, gaps); p.Token <= first {
		t.Errorf("token %d after %d", p.Token, first)
	}
	if s := a.left(many); s != driver.Held {
		t.Errorf("the holder of all was %v", s)
	}
	b.woken(next, gaps)

	// From now on pushes flow from the new node.
	again := a.ticket(name)
	a.take(again, driver.Waiting)
	b.leaves(waits, driver.Held)
	a.granted(again)
	if line, err := b.Inspect(b.ctx(), name); err != nil || len(line.Tickets) != 1 || line.Tickets[0].ID != again.ID {
		t.Errorf("Inspect: %+v, %v", line, err)
	}
	names := 0
	for _, err := range b.Names(b.ctx(), "") {
		if names++; err != nil {
			t.Error(err)
		}
	}
	if names != 3 {
		t.Errorf("%d names, want 3", names)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// TestF28_ClusterFailover kills a primary, whose replica is promoted: holds
// that the replica has go on, and every waiter is woken.
//
// Covers: F22, F28, F36 on cluster.
func TestF28_ClusterFailover(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"killed", "paused"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			// Long enough for all tries below, and for nodes that stand still.
			c := servers.RedisClusterOf(t, servers.RedisClusterOptions{NodeTimeout: 4 * time.Second})
			a, b := listen(t, openCluster(t, c, "timeout=1s")), listen(t, openCluster(t, c, "timeout=1s"))
			const name = "n"
			old := c.Primary(t, slotOf(name))
			held, waits, other := a.ticket(name), b.ticket(name), a.ticket("elsewhere")
			for i := 0; c.Primary(t, slotOf(other.Name)) == old; i++ {
				other.Name = fmt.Sprint("elsewhere", i)
			}
			first := a.take(held, driver.Held).Token
			b.take(waits, driver.Waiting)
			a.take(other, driver.Held)
			inStep(t, old)
			gaps := len(b.heard(""))
			if how == "killed" {
				old.Crash(t)
			} else {
				old.Pause(t)
			}
			// Another node's tickets are renewed, in one call with those of
			// the silent one.
			for try := 1; ; try++ {
				soon, cancel := context.WithTimeout(context.Background(), time.Second)
				ps := must(a.Renew(soon, []driver.Ref{ref(other), ref(held)}))
				cancel()
				if ps[0].State == driver.Held {
					break
				}
				if try == 3 {
					t.Fatalf("a ticket of another node: %v, %v", ps[0].State, ps[0].Err)
				}
			}
			a.outlasts(held, first)
			if p := b.woken(waits, gaps); p.Token <= first {
				t.Errorf("token %d after %d", p.Token, first)
			}
			if how == "paused" {
				old.Resume(t)
			} else {
				old.Restart(t)
			}
			again := a.ticket(name)
			if p := a.joins(again); p.State != driver.Waiting {
				t.Errorf("the next ticket is %v", p.State)
			}
			gaps = len(a.heard(""))
			b.left(waits)
			a.woken(again, gaps)
			a.left(again)
			a.left(other)
		})
	}
}

// inStep waits until a primary's replica has all writes.
func inStep(t *testing.T, s *servers.RedisServer) {
	t.Helper()
	eventually(t, "the replica is in step", func() bool {
		info := s.Do(t, "INFO", "replication").(string)
		_, at, ok := strings.Cut(info, "master_repl_offset:")
		at, _, _ = strings.Cut(at, "\r\n")
		return ok && strings.Contains(info, "state=online,offset="+at+",")
	})
}

// cutOff stops a replica, and the traffic under way to it.
func cutOff(t *testing.T, primary, replica *servers.RedisServer) {
	t.Helper()
	replica.Pause(t)
	primary.Do(t, "CLIENT", "KILL", "TYPE", "replica")
}

// TestF28_ClusterLostWithFailover checks that a hold which never reached the
// replica is lost with the primary, and reported as lost, and that tokens keep
// growing.
func TestF28_ClusterLostWithFailover(t *testing.T) {
	t.Parallel()
	c := servers.RedisClusterOf(t, servers.RedisClusterOptions{NodeTimeout: 5 * time.Second})
	a := listen(t, openCluster(t, c, "timeout=1s"))
	const name = "n"
	old := c.Primary(t, slotOf(name))
	replica := c.Replica(old)
	cutOff(t, old, replica)
	held := a.ticket(name)
	last := a.take(held, driver.Held).Token
	old.Crash(t)
	replica.Resume(t)
	if p := a.settles(held); p.State != driver.Gone {
		t.Errorf("the lost hold is %v", p.State)
	}
	if p := a.joins(a.ticket(name)); p.State != driver.Held || p.Token <= last {
		t.Errorf("the next is %v with token %d after %d", p.State, p.Token, last)
	}
}

// TestF67_ClusterTokensEnd checks that tokens end at every node as they do at
// one server.
func TestF67_ClusterTokensEnd(t *testing.T) {
	t.Parallel()
	c := servers.SharedRedisCluster(t)
	tokensEnd(t, listen(t, openCluster(t, c, "")), func(name string) *servers.RedisServer {
		return c.Primary(t, wire.Slot(wire.HoldersKey(DefaultPrefix, name)))
	})
}
