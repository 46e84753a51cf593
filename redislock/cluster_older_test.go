package redislock

import (
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivertest"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
	"github.com/holdfast-go/holdfast/redislock/internal/server"
	"github.com/holdfast-go/holdfast/redislock/internal/wire"
)

// TestOldClusterConformance runs the cases in which a ticket is granted by
// another client's request, and the hammers: waiters poll here, because the
// cluster has no messages of a slot. -redislock.all runs all cases.
func TestOldClusterConformance(t *testing.T) {
	h := clusterHarness(t, 3)
	h.LeaveOut = except("first-come", "mark", "units", "owner-shares", "owner-apart", "leave-", "join-again", "gone-stays-gone",
		"replaces", "recheck", "break-", "program", "hammer-mutex", "hammer-units")
	drivertest.Run(t, h)
}

// TestClusterPollsDuringUpgrade upgrades a cluster to Redis 7. A program that
// found an older node polls, and one that started later gets pushes. They wait
// in one queue, and each hands the lock to the other.
func TestClusterPollsDuringUpgrade(t *testing.T) {
	t.Parallel()
	c := servers.RedisClusterOf(t, servers.RedisClusterOptions{NodeTimeout: time.Minute, NoReplicas: true, Older: 1})
	if !wire.AtLeast(c.Nodes[0].Info(t, "server", "redis_version"), 7, 0) {
		t.Fatal("this needs Redis 7: before, nobody is told")
	}
	asks, told := openCluster(t, c, ""), openCluster(t, c, "")
	if asks.Traits().Push {
		t.Error("there is a node that tells nobody, and push")
	}
	var nodes []*server.Driver
	if err := told.nodes.CheckPrimaries(t.Context(), func(d *server.Driver) error { nodes = append(nodes, d); return nil }); err != nil {
		t.Fatal(err)
	}
	told.nodes.Polls.Store(false)
	for _, d := range nodes {
		d.Polls.Store(!wire.AtLeast(d.Version, 7, 0))
	}
	a, b := listen(t, asks), listen(t, told)
	for _, limit := range []int64{1, 3} {
		name := fmt.Sprint("n", limit) // of the first nodes, which are of Redis 7
		for slotOf(name) > wire.Slots/2 {
			name += "x"
		}
		ticket := func(m *member) *driver.Ticket {
			k := m.ticket(name)
			k.Limit, k.Units = limit, limit
			return k
		}
		a1, a2, b1, a3, b2 := ticket(a), ticket(a), ticket(b), ticket(a), ticket(b)
		a.take(a1, driver.Held)
		for n, k := range []*driver.Ticket{a2, b1, a3, b2} {
			m, pace := a, time.Duration(n+1)*server.PaceFirst
			if k == b1 || k == b2 {
				m, pace = b, 0
			}
			p := m.take(k, driver.Waiting)
			if pace > 0 && p.Recheck != pace || pace == 0 && p.Recheck < time.Second {
				t.Errorf("the waiter %d is to ask in %v", n+1, p.Recheck)
			}
		}
		a.leaves(a1, driver.Held)
		a.keeps(a2, driver.Held)
		a.leaves(a2, driver.Held)
		b.granted(b1)
		a.keeps(a3, driver.Waiting)
		b.leaves(b1, driver.Held)
		b.keeps(b2, driver.Waiting) // not passed over, though no push was sent to it
		a.keeps(a3, driver.Held)
		a.leaves(a3, driver.Held)
		b.granted(b2)
		b.leaves(b2, driver.Held)
	}

	// A driver that gets pushes polls at an older node, too.
	old := "old"
	for slotOf(old) < wire.Slots*2/3+1 {
		old += "x"
	}
	held, waits := b.ticket(old), b.ticket(old)
	b.take(held, driver.Held)
	if p := b.take(waits, driver.Waiting); p.Recheck != server.PaceFirst {
		t.Errorf("who waits at a node of before is to ask in %v", p.Recheck)
	}
	b.leaves(held, driver.Held)
	b.keeps(waits, driver.Held)

	fs := findings(t, a)
	if f, ok := fs["push"]; ok || fs["cluster"].Level != driver.Warning {
		t.Errorf("Check says %+v of pushes, and of the cluster %+v", f, fs["cluster"])
	}
	if log := c.Nodes[2].Do(t, "ACL", "LOG").([]any); len(log) > 0 {
		t.Errorf("a node was asked for what it does not have: %v", log)
	}
}
