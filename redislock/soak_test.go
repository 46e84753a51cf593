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
	"github.com/holdfast-go/holdfast/internal/backends"
)

// soakFor is how long TestFailoverSoak runs, and 0 not at all: one fault after
// another takes minutes, and each of them has a test of its own. The figures of a
// long run are what a release is judged by, see CONTRIBUTING.md.
var soakFor = flag.Duration("failover.soak", 0, "how long primaries are killed, paused and relieved of slots; 0 for not at all")

// register is a resource that refuses tokens below the highest it has seen, and
// the one without that check beside it.
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

// tally is what a soak has counted.
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

// Primaries fail again and again while locks are taken. Replication lags, so
// that two may believe in one lock for a while; but tokens grow, whoever was
// overtaken is told or refused, and nobody waits for ever.
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
		c := backends.RedisClusterOf(t, backends.RedisClusterOptions{})
		open = func() driver.Driver { return openCluster(t, c, query) }
		fault = func(r *rand.Rand) { clusterFault(t, c, r) }
	} else {
		s := backends.RedisSentinelsOf(t, backends.RedisSentinelOptions{DownAfter: 3000})
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
		for i, g := range resources { // each who waits has its turn before the next
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
	// Whoever asked after another was granted has the greater token.
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
// moves a slot; and mends it.
func clusterFault(t *testing.T, c *backends.RedisCluster, r *rand.Rand) {
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
			to = c.Primary(t, r.IntN(slots))
		}
		c.BeginMove(t, slot, to)
		time.Sleep(time.Duration(r.IntN(200)) * time.Millisecond)
		c.FinishMove(t, slot, to)
	}
	c.Settle(t)
}

// sentinelFault kills or pauses the primary until its replica has taken over,
// and mends it.
func sentinelFault(t *testing.T, s *backends.RedisSentinels, r *rand.Rand) {
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
	// Sentinels let it be for ten seconds, and longer on a busy machine; there
	// they may also take the new one for dead and change back.
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
