package servers

import (
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/safety/torture"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
)

// overlaps is the list of the checks that fail if two clients may hold at once.
// The promises of the register and the tokens must still hold.
var overlaps = []string{"C1", "C5"}

// often is the number of long holds in 1000 if an overlap needs a hold at the
// moment of the fault.
const often = 60

var exposed = []scenario{
	// F26: each kill loses all data.
	{name: "redis without its data", seed: 21, exposed: overlaps, bites: true, long: often, start: func(t *testing.T, rnd *faultSource) deployment {
		s := servers.Redis(t, servers.RedisOptions{})
		return deployment{url: s.URL(""), own: []torture.Fault{
			oneFault("data lost", func() error { s.Restart(t); return nil }, func() {}),
		}}
	}},
	// F27: the server comes back with its data from the begin of the fault.
	{name: "redis with older data", seed: 22, exposed: overlaps, long: often, start: func(t *testing.T, rnd *faultSource) deployment {
		s := servers.Redis(t, servers.RedisOptions{})
		return deployment{url: s.URL(""), own: []torture.Fault{
			oneFault("data set back", func() error { _, err := s.Try("SAVE"); return err }, func() { s.Restart(t) }),
		}}
	}},
	// F18: a minute forward each time.
	{name: "redis with its clock ahead", seed: 23, exposed: overlaps, bites: true, long: often, start: func(t *testing.T, rnd *faultSource) deployment {
		clock := servers.NewClock(t, t.TempDir())
		s := servers.Redis(t, servers.RedisOptions{Env: clock.Env()})
		return deployment{url: s.URL(""), own: []torture.Fault{
			oneFault("clock ahead", func() error { clock.Step(t, time.Minute); return nil }, func() {}),
		}}
	}},
	// F20: tokens do not survive the loss of data and time together. The guard
	// stops a holder with too low a token, and nothing is corrupted.
	{name: "redis without data and time", seed: 24, exposed: append([]string{"C3", "C4"}, overlaps...), bites: true, long: often, start: func(t *testing.T, rnd *faultSource) deployment {
		clock := servers.NewClock(t, t.TempDir())
		s := servers.Redis(t, servers.RedisOptions{Env: clock.Env()})
		return deployment{url: s.URL(""), own: []torture.Fault{
			oneFault("data and time lost", func() error {
				clock.Step(t, -10*time.Minute)
				s.Restart(t)
				return nil
			}, func() {}),
		}}
	}},
	// F37, F45: a node that voted comes back empty, and is asked again at once.
	{name: "redlock with a node without its data", seed: 25, exposed: overlaps, long: often, start: func(t *testing.T, rnd *faultSource) deployment {
		nodes, url := independent(t, 3, servers.RedisOptions{})
		return deployment{url: url + "?restart_guard=off", own: []torture.Fault{
			crashEmptyAtOnce(t, rnd, nodes),
		}}
	}},
	// The same with the restart guard, which is on by default: safe.
	{name: "redlock with a node without its data and the guard", seed: 26, start: func(t *testing.T, rnd *faultSource) deployment {
		nodes, url := independent(t, 3, servers.RedisOptions{})
		return deployment{url: url, own: []torture.Fault{
			crashEmptyAtOnce(t, rnd, nodes),
		}}
	}},
	// F33: the keys that are used least, or expire first, are evicted. For
	// soaks: a reader that a client lets in beside a reader of its own, whose
	// place was evicted, has that reader's token, which is lower than that of a
	// writer in between.
	{name: "redis that evicts what ends first", seed: 29, exposed: overlaps, long: often, start: func(t *testing.T, rnd *faultSource) deployment {
		return redisThatEvicts(t, "volatile-ttl")
	}},
	{name: "redis that evicts what was not used", seed: 30, exposed: overlaps, long: often, start: func(t *testing.T, rnd *faultSource) deployment {
		return redisThatEvicts(t, "allkeys-lru")
	}},
	// F95: commits that are answered before they are on the disk.
	{name: "mariadb that flushes late", seed: 27, exposed: overlaps, long: often, start: func(t *testing.T, rnd *faultSource) deployment {
		return mariadb(t, rnd, "innodb_flush_log_at_trx_commit=0")
	}},
	{name: "postgres that flushes late", seed: 28, exposed: overlaps, long: often, start: func(t *testing.T, rnd *faultSource) deployment {
		return postgres(t, rnd, "synchronous_commit=off", "wal_writer_delay=10s")
	}},
}

// crashEmptyAtOnce is a fault that crashes one of the nodes, which comes back
// empty at once.
func crashEmptyAtOnce(t *testing.T, rnd *faultSource, nodes []*servers.RedisServer) torture.Fault {
	return oneFault("data lost", func() error { nodes[rnd.intN(len(nodes))].Restart(t); return nil }, func() {})
}

// failovers are failovers with asynchronous replication (F28), and with a
// majority whose members forget their votes (F42).
var failovers = []scenario{
	{name: "sentinel", seed: 31, ttl: 3 * time.Second, exposed: overlaps, long: often, start: func(t *testing.T, rnd *faultSource) deployment { return sentinel(t, rnd, "") }},
	{name: "sentinel that confirms", seed: 32, ttl: 3 * time.Second, exposed: overlaps, long: often, start: func(t *testing.T, rnd *faultSource) deployment {
		return sentinel(t, rnd, "min_replicas=1")
	}},
	{name: "cluster", seed: 33, ttl: 3 * time.Second, exposed: overlaps, long: often, start: func(t *testing.T, rnd *faultSource) deployment { return cluster(t, rnd, "") }},
	{name: "cluster that confirms", seed: 34, ttl: 3 * time.Second, exposed: overlaps, long: often, start: func(t *testing.T, rnd *faultSource) deployment {
		return cluster(t, rnd, "min_replicas=1")
	}},
	{name: "redlock of five that forgets", seed: 35, exposed: overlaps, bites: true, long: often, start: func(t *testing.T, rnd *faultSource) deployment {
		return redlockThatForgets(t, rnd, 3, "?restart_guard=off")
	}},
	{name: "redlock of five of which two forget", seed: 36, exposed: overlaps, long: often, start: func(t *testing.T, rnd *faultSource) deployment {
		return redlockThatForgets(t, rnd, 2, "?restart_guard=off")
	}},
}

// awaitFailover waits until a primary that strike has struck is replaced, and,
// after its repair, until one of the two is the other's replica.
func awaitFailover(kind string, primary func() (old, next *servers.RedisServer),
	strike func(*servers.RedisServer) (mend func() error, err error), settle func(),
) torture.Fault {
	return torture.Fault{Kind: kind, Weight: 30, Begin: func(int) (func() error, error) {
		old, next := primary()
		mend, err := strike(old)
		if err != nil {
			return nil, err
		}
		return func() error {
			if err := mend(); err != nil {
				return err
			}
			defer settle()
			// A primary that was cut off may have voted meanwhile, and be the
			// primary again.
			return awaitCondition("one of the two follows the other", func() bool {
				a, b := isReplicaInSync(old), isReplicaInSync(next)
				return a && !b && replicationHas(next, "role:master") || b && !a && replicationHas(old, "role:master")
			})
		}, awaitCondition("the replica takes over", func() bool { return replicationHas(next, "role:master") })
	}}
}

// isReplicaInSync reports whether a server is a replica that is in step.
func isReplicaInSync(s *servers.RedisServer) bool {
	return replicationHas(s, "role:slave", "master_link_status:up")
}

// killOrStop kills a server, or stops it.
func killOrStop(t *testing.T, rnd *faultSource) func(*servers.RedisServer) (func() error, error) {
	return func(s *servers.RedisServer) (func() error, error) {
		if rnd.intN(2) == 0 {
			s.Kill()
			return func() error { s.Restart(t); return nil }, nil
		}
		s.Pause(t)
		return func() error { s.Resume(t); return nil }, nil
	}
}

// replicationHas reports whether a server's replication section has all these
// words.
func replicationHas(s *servers.RedisServer, words ...string) bool {
	info, err := s.Try("INFO", "replication")
	text, _ := info.(string)
	for _, w := range words {
		if !strings.Contains(text, w) {
			return false
		}
	}
	return err == nil
}

func sentinel(t *testing.T, rnd *faultSource, query string) deployment {
	s := servers.RedisSentinelsOf(t, servers.RedisSentinelOptions{})
	return deployment{url: s.URL(query), own: []torture.Fault{
		awaitFailover("failover", func() (old, next *servers.RedisServer) { return s.Relief(t) }, killOrStop(t, rnd), func() {}),
	}}
}

// slots is the number of slots of a cluster.
const slots = 16384

func cluster(t *testing.T, rnd *faultSource, query string) deployment {
	c := servers.RedisClusterOf(t, servers.RedisClusterOptions{})
	return deployment{url: c.URL(query), own: []torture.Fault{awaitFailover("failover", func() (old, next *servers.RedisServer) {
		old = c.Primary(t, rnd.intN(slots))
		return old, c.Replica(old)
	}, killOrStop(t, rnd), func() { c.Settle(t) })}}
}
