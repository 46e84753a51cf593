package servers

import (
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/check/torture"
	"github.com/holdfast-go/holdfast/internal/backends"
)

// overlaps are the checks that count where two may hold at once. What the
// register and the tokens promise still has to hold.
var overlaps = []string{"C1", "C5"}

// often is how many of 1000 holds are long, where an overlap needs one that is
// there when the fault strikes.
const often = 60

var exposed = []scenario{
	// F26: each kill loses everything.
	{name: "redis without its data", seed: 21, exposed: overlaps, bites: true, long: often, start: func(t *testing.T, rnd *dice) scene {
		s := backends.Redis(t, backends.RedisOptions{})
		return scene{url: s.URL(""), own: []torture.Fault{
			once("data lost", func() error { s.Restart(t); return nil }, func() {}),
		}}
	}},
	// F27: it comes back with what it had when the fault began.
	{name: "redis with older data", seed: 22, exposed: overlaps, long: often, start: func(t *testing.T, rnd *dice) scene {
		s := backends.Redis(t, backends.RedisOptions{})
		return scene{url: s.URL(""), own: []torture.Fault{
			once("data set back", func() error { _, err := s.Try("SAVE"); return err }, func() { s.Restart(t) }),
		}}
	}},
	// F18: a minute forward each time.
	{name: "redis with its clock ahead", seed: 23, exposed: overlaps, bites: true, long: often, start: func(t *testing.T, rnd *dice) scene {
		clock := backends.NewClock(t, t.TempDir())
		s := backends.Redis(t, backends.RedisOptions{Env: clock.Env()})
		return scene{url: s.URL(""), own: []torture.Fault{
			once("clock ahead", func() error { clock.Step(t, time.Minute); return nil }, func() {}),
		}}
	}},
	// F20: both at once is what tokens do not survive: the guard stalls who has
	// one that is too low, and nothing is corrupted.
	{name: "redis without data and time", seed: 24, exposed: append([]string{"C3", "C4"}, overlaps...), bites: true, long: often, start: func(t *testing.T, rnd *dice) scene {
		clock := backends.NewClock(t, t.TempDir())
		s := backends.Redis(t, backends.RedisOptions{Env: clock.Env()})
		return scene{url: s.URL(""), own: []torture.Fault{
			once("data and time lost", func() error {
				clock.Step(t, -10*time.Minute)
				s.Restart(t)
				return nil
			}, func() {}),
		}}
	}},
	// F37, F45: a node that voted comes back empty, and is asked again at once.
	{name: "redlock with a node without its data", seed: 25, exposed: overlaps, long: often, start: func(t *testing.T, rnd *dice) scene {
		nodes, url := independent(t, 3, backends.RedisOptions{})
		return scene{url: url + "?restart_guard=off", own: []torture.Fault{
			lostAtOnce(t, rnd, nodes),
		}}
	}},
	// The same with the guard, which is on unless one says otherwise: safe.
	{name: "redlock with a node without its data and the guard", seed: 26, start: func(t *testing.T, rnd *dice) scene {
		nodes, url := independent(t, 3, backends.RedisOptions{})
		return scene{url: url, own: []torture.Fault{
			lostAtOnce(t, rnd, nodes),
		}}
	}},
	// F33: what is used least, or ends first, makes room. For soaks: a reader whom
	// a client lets in beside one of its own, whose place was evicted, has that
	// one's token, which is less than that of a writer in between.
	{name: "redis that evicts what ends first", seed: 29, exposed: overlaps, long: often, start: func(t *testing.T, rnd *dice) scene {
		return evicts(t, "volatile-ttl")
	}},
	{name: "redis that evicts what was not used", seed: 30, exposed: overlaps, long: often, start: func(t *testing.T, rnd *dice) scene {
		return evicts(t, "allkeys-lru")
	}},
	// F95: commits that are answered before they are on the disk.
	{name: "mariadb that flushes late", seed: 27, exposed: overlaps, long: often, start: func(t *testing.T, rnd *dice) scene {
		return mariadb(t, rnd, "innodb_flush_log_at_trx_commit=0")
	}},
	{name: "postgres that flushes late", seed: 28, exposed: overlaps, long: often, start: func(t *testing.T, rnd *dice) scene {
		return postgres(t, rnd, "synchronous_commit=off", "wal_writer_delay=10s")
	}},
}

// lostAtOnce has one of the nodes crash, and come back empty at once.
func lostAtOnce(t *testing.T, rnd *dice, nodes []*backends.RedisServer) torture.Fault {
	return once("data lost", func() error { nodes[rnd.roll(len(nodes))].Restart(t); return nil }, func() {})
}

// failovers are those of asynchronous replication (F28), and of a majority whose
// members forget what they said (F42).
var failovers = []scenario{
	{name: "sentinel", seed: 31, ttl: 3 * time.Second, exposed: overlaps, long: often, start: func(t *testing.T, rnd *dice) scene { return sentinel(t, rnd, "") }},
	{name: "sentinel that confirms", seed: 32, ttl: 3 * time.Second, exposed: overlaps, long: often, start: func(t *testing.T, rnd *dice) scene {
		return sentinel(t, rnd, "min_replicas=1")
	}},
	{name: "cluster", seed: 33, ttl: 3 * time.Second, exposed: overlaps, long: often, start: func(t *testing.T, rnd *dice) scene { return cluster(t, rnd, "") }},
	{name: "cluster that confirms", seed: 34, ttl: 3 * time.Second, exposed: overlaps, long: often, start: func(t *testing.T, rnd *dice) scene {
		return cluster(t, rnd, "min_replicas=1")
	}},
	{name: "redlock of five that forgets", seed: 35, exposed: overlaps, bites: true, long: often, start: func(t *testing.T, rnd *dice) scene {
		return redlockThatForgets(t, rnd, 3, "?restart_guard=off")
	}},
	{name: "redlock of five of which two forget", seed: 36, exposed: overlaps, long: often, start: func(t *testing.T, rnd *dice) scene {
		return redlockThatForgets(t, rnd, 2, "?restart_guard=off")
	}},
}

// relieved waits until a primary that strike has struck is replaced, and, once
// that is mended, until one of the two is the other's replica.
func relieved(kind string, primary func() (old, next *backends.RedisServer),
	strike func(*backends.RedisServer) (mend func() error, err error), settle func(),
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
			// One that was cut off may have voted meanwhile, and be the primary again.
			return must("one of the two follows the other", func() bool {
				a, b := follows(old), follows(next)
				return a && !b && says(next, "role:master") || b && !a && says(old, "role:master")
			})
		}, must("the replica takes over", func() bool { return says(next, "role:master") })
	}}
}

// follows says whether a server is a replica that is in step.
func follows(s *backends.RedisServer) bool { return says(s, "role:slave", "master_link_status:up") }

// down kills a server, or stops it.
func down(t *testing.T, rnd *dice) func(*backends.RedisServer) (func() error, error) {
	return func(s *backends.RedisServer) (func() error, error) {
		if rnd.roll(2) == 0 {
			s.Kill()
			return func() error { s.Restart(t); return nil }, nil
		}
		s.Pause(t)
		return func() error { s.Resume(t); return nil }, nil
	}
}

// says is whether a server says all of this about its replication.
func says(s *backends.RedisServer, words ...string) bool {
	info, err := s.Try("INFO", "replication")
	text, _ := info.(string)
	for _, w := range words {
		if !strings.Contains(text, w) {
			return false
		}
	}
	return err == nil
}

func sentinel(t *testing.T, rnd *dice, query string) scene {
	s := backends.RedisSentinelsOf(t, backends.RedisSentinelOptions{})
	return scene{url: s.URL(query), own: []torture.Fault{
		relieved("failover", func() (old, next *backends.RedisServer) { return s.Relief(t) }, down(t, rnd), func() {}),
	}}
}

// slots of a cluster.
const slots = 16384

func cluster(t *testing.T, rnd *dice, query string) scene {
	c := backends.RedisClusterOf(t, backends.RedisClusterOptions{})
	return scene{url: c.URL(query), own: []torture.Fault{relieved("failover", func() (old, next *backends.RedisServer) {
		old = c.Primary(t, rnd.roll(slots))
		return old, c.Replica(old)
	}, down(t, rnd), func() { c.Settle(t) })}}
}
