package servers

import (
	"testing"
)

// TestRedisCluster checks that a cluster starts, replaces a node that was
// killed, and moves a slot.
func TestRedisCluster(t *testing.T) {
	t.Parallel()
	for _, tls := range []bool{false, true} {
		c := RedisClusterOf(t, RedisClusterOptions{Redis: RedisOptions{TLS: tls, Password: "secret"}})
		const slot = 0
		old := c.Primary(t, slot)
		if old != c.Nodes[0] {
			t.Fatal("the first node does not have the first slot")
		}
		if tls {
			continue
		}
		c.BeginMove(t, slot, c.Nodes[1])
		c.FinishMove(t, slot, c.Nodes[1])
		if c.Primary(t, slot) != c.Nodes[1] {
			t.Error("the slot has not moved")
		}
		old.Crash(t)
		c.AwaitPrimary(t, c.Replica(old))
		if c.Primary(t, slot+1) != c.Replica(old) {
			t.Error("the replica has not been promoted")
		}
	}
}

// TestRedisSentinels checks that Sentinels start, and replace a primary that
// was killed.
func TestRedisSentinels(t *testing.T) {
	t.Parallel()
	for _, tls := range []bool{false, true} {
		s := RedisSentinelsOf(t, RedisSentinelOptions{Redis: RedisOptions{TLS: tls, Password: "secret"}, SentinelPassword: "other"})
		if s.Primary(t) != s.Nodes[0] {
			t.Fatal("the first node is not the primary")
		}
		if tls {
			continue
		}
		s.Nodes[0].Crash(t)
		s.AwaitPrimary(t, s.Nodes[1])
	}
}
