package redislock

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
	"github.com/holdfast-go/holdfast/redislock/internal/wire"
)

// soakFor is the running time of TestFailoverSoak; 0 skips it. The faults
// follow one another for minutes, and each of them has a test of its own. A
// release is judged by the figures of a long run, see CONTRIBUTING.md.
// long run are what a release is judged by, see CONTRIBUTING.md.
var soakFor = flag.Duration("failover.soak", 0, "how long primaries are killed, paused and relieved of slots; 0 for not at all")

// register is a resource that refuses tokens below the highest it has seen.
// Beside it is a resource without that check.
type register struct {
	mu      sync.Mutex
	turns   int
	highest uint64
	inside  map[*holdfast.Hold]bool
}

func (g *register) had() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.turns
}

// tally is a soak's counts.
type tally struct {
	mu   sync.Mutex
	errs map[string]int // one of each kind of error, by its class and end

	acquired, unavailable, lost, refused, overlaps, faults atomic.Int64
}

// note keeps one error of each kind.
func (n *tally) note(err error) {
	text := err.Error()
	if i := strings.LastIndex(text, ": "); i >= 0 {
		text = driver.ClassOf(err).String() + text[i:]
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.errs == nil {
		n.errs = make(map[string]int)
	}
	n.errs[text]++
}

// TestFailoverSoak makes primaries fail again and again while locks are taken.
// Replication lags, so two clients may believe for a while that they hold one
// lock. But tokens grow, every client that was overtaken learns of it or is
// refused, and no client waits for ever.
func TestFailoverSoak(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"cluster", "sentinel"} {
		for _, query := range []string{"", "min_replicas=1&"} {
			if *soakFor == 0 {
				return
			}
			t.Run(kind+" "+strings.TrimSuffix(query, "&"), func(t *testing.T) {
				t.Parallel()
				soak(t, kind, query+"timeout=1s&dial_timeout=1s")
			})
		}
	}
}

func soak(t *testing.T, kind, query string) {
	var open func() driver.Driver
	var fault func(*rand.Rand)
	if kind == "cluster" {
		c := servers.RedisClusterOf(t, servers.RedisClusterOptions{})
		open = func() driver.Driver { return openCluster(t, c, query) }
		fault = func(r *rand.Rand) { clusterFault(t, c, r) }
	} else {
		s := servers.RedisSentinelsOf(t, servers.RedisSentinelOptions{DownAfter: 3000})
		open = func() driver.Driver { return openSentinel(t, s, query) }
		fault = func(r *rand.Rand) { sentinelFault(t, s, r) }
	}
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	t.Logf("seed %d", seed)
	const names, ttl = 8, 3 * time.Second
	var n tally
	resources := make([]*register, names)
	for i := range resources {
		resources[i] = &register{inside: make(map[*holdfast.Hold]bool)}
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for range 3 {
		l, err := holdfast.New(open(), holdfast.WithTTL(ttl))
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		for i, g := range resources {
			wg.Go(func() {
				for ctx.Err() == nil {
					turn(t, l, fmt.Sprint("n", i), g, &n)
				}
			})
		}
	}
	for end := time.Now().Add(*soakFor); time.Now().Before(end) && !t.Failed(); {
		fault(r)
		n.faults.Add(1)
		for i, g := range resources { // every waiter has its turn before the next
			had := g.had()
			eventually(t, fmt.Sprintf("n%d is taken after a fault", i), func() bool { return g.had() > had+3 })
		}
	}
	cancel()
	wg.Wait()
	d := open()
	l, err := holdfast.New(d, holdfast.WithTTL(ttl))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for i, g := range resources {
		turn(t, l, fmt.Sprint("n", i), g, &n)
		if line, err := d.Inspect(t.Context(), fmt.Sprint("n", i)); err != nil || len(line.Tickets) != 0 {
			t.Errorf("left behind: %+v, %v", line.Tickets, err)
		}
	}
	t.Logf("%d faults, %d acquisitions; %d times the store was away for longer than a Lock asks; %d holds lost and told; "+
		"%d overlaps of what two believed, %d writes refused by their token",
		n.faults.Load(), n.acquired.Load(), n.unavailable.Load(), n.lost.Load(), n.overlaps.Load(), n.refused.Load())
	t.Logf("errors: %v", n.errs)
}

// turn takes a lock once and uses what it protects.
func turn(t *testing.T, l *holdfast.Client, name string, g *register, n *tally) {
	g.mu.Lock()
	before := g.highest
	g.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	hold, err := l.Mutex(name).Lock(ctx)
	if err != nil {
		if ctx.Err() != nil {
			line, lerr := l.Inspect(context.Background(), name)
			t.Errorf("%s: a Lock hangs: %v; the line is %+v, %v", name, err, line, lerr)
		}
		n.unavailable.Add(1)
		n.note(err)
		time.Sleep(50 * time.Millisecond)
		return
	}
	n.acquired.Add(1)
	g.mu.Lock()
	// A Lock that began after another grant has the greater token.
	if hold.Token() <= before {
		t.Errorf("%s: token %d after %d", name, hold.Token(), before)
	}
	for other := range g.inside {
		if other.Err() == nil && hold.Err() == nil {
			n.overlaps.Add(1)
		}
	}
	if hold.Token() < g.highest {
		n.refused.Add(1)
	}
	g.highest = max(g.highest, hold.Token())
	g.turns++
	g.inside[hold] = true
	g.mu.Unlock()
	time.Sleep(time.Duration(rand.IntN(3)) * time.Millisecond) // work
	g.mu.Lock()
	if hold.Token() < g.highest {
		n.refused.Add(1)
	}
	delete(g.inside, hold)
	g.mu.Unlock()
	if hold.Err() != nil {
		n.lost.Add(1)
	}
	_ = hold.Unlock()
}

// clusterFault kills or pauses a primary until its replica has taken over, or
// moves a slot; then it repairs the cluster.
func clusterFault(t *testing.T, c *servers.RedisCluster, r *rand.Rand) {
	slot := slotOf(fmt.Sprint("n", r.IntN(8)))
	old := c.Primary(t, slot)
	switch r.IntN(3) {
	case 0:
		old.Crash(t)
		c.AwaitPrimary(t, c.Replica(old))
		old.Restart(t)
	case 1:
		old.Pause(t)
		eventually(t, "the replica takes over", func() bool {
			info, err := c.Replica(old).Try("INFO", "replication")
			return err == nil && info.(string)[:30] == "# Replication\r\nrole:master\r\nco"
		})
		old.Resume(t)
	case 2:
		to := old
		for to == old {
			to = c.Primary(t, r.IntN(wire.Slots))
		}
		c.BeginMove(t, slot, to)
		time.Sleep(time.Duration(r.IntN(200)) * time.Millisecond)
		c.FinishMove(t, slot, to)
	}
	c.Settle(t)
}

// sentinelFault kills or pauses the primary until its replica has taken over,
// and then repairs it.
func sentinelFault(t *testing.T, s *servers.RedisSentinels, r *rand.Rand) {
	old := s.Primary(t)
	next := s.Nodes[0]
	if next == old {
		next = s.Nodes[1]
	}
	eventually(t, "the replica is known to be in step", func() bool {
		return next.Info(t, "replication", "master_link_status") == "up"
	})
	if r.IntN(2) == 0 {
		old.Crash(t)
		s.AwaitPrimary(t, next)
		old.Restart(t)
	} else {
		old.Pause(t)
		s.AwaitPrimary(t, next)
		old.Resume(t)
	}
	// Sentinels wait ten seconds before they act again, and longer on a busy
	// machine. There, they may also take the new primary for dead and change
	// back.
	for end := time.Now().Add(10 * patience); ; time.Sleep(20 * time.Millisecond) {
		now := s.Primary(t)
		for _, node := range s.Nodes {
			info, err := node.Try("INFO", "replication")
			if text, _ := info.(string); err == nil && node != now && strings.Contains(text, "role:slave") {
				return
			}
		}
		if time.Now().After(end) {
			t.Fatal("the old primary does not follow the new one")
		}
	}
}
