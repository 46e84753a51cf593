package goredis

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivertest"
	"github.com/holdfast-go/holdfast/drivertest/locktest"
	"github.com/holdfast-go/holdfast/drivertest/procs"
	"github.com/holdfast-go/holdfast/internal/backends"
	"github.com/holdfast-go/holdfast/redislock"
)

func TestMain(m *testing.M) {
	procs.Child(func(target string) (driver.Driver, error) {
		return New(redis.NewClusterClient(&redis.ClusterOptions{Addrs: strings.Split(target, " ")}), nil)
	})
	redis.SetLogger(quietly{}) // servers fail here on purpose
	flag.Parse()
	if err := flag.Set("test.parallel", "16"); err != nil { // the tests wait more than they work
		panic(err)
	}
	backends.Main(m)
}

type quietly struct{}

// Printf implements the client's logger.
func (quietly) Printf(context.Context, string, ...any) {}

// patience bounds what has to happen; it only decides when to give up.
const patience = 30 * time.Second

func clientOf(t testing.TB, s *backends.RedisServer) *redis.Client {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: s.Addr(), Password: s.Password, PoolSize: 500})
	t.Cleanup(func() { c.Close() })
	return c
}

func addrsOf(c *backends.RedisCluster) (addrs []string) {
	for _, s := range c.Nodes {
		addrs = append(addrs, s.Addr())
	}
	return addrs
}

func clusterOf(t testing.TB, c *backends.RedisCluster, timeout time.Duration) *redis.ClusterClient {
	t.Helper()
	cc := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrsOf(c), ReadTimeout: timeout, PoolSize: 500})
	t.Cleanup(func() { cc.Close() })
	return cc
}

// opens makes the Open of a harness: every driver has the one client.
func opens(c redis.UniversalClient) func(drivertest.T) driver.Driver {
	return func(t drivertest.T) driver.Driver {
		d, err := New(c, nil)
		if err != nil {
			t.Fatalf("New: %v", err)
		}
		return d
	}
}

// The client keeps connections for as long as it lives, so none are counted. All
// drivers share it, and each takes one of its pool for itself.
func TestConformance(t *testing.T) {
	s := backends.Redis(t, backends.RedisOptions{})
	h := drivertest.Harness{
		Open: opens(clientOf(t, s)), TTL: time.Second,
		Pause: func(drivertest.T) func() {
			s.Pause(t)
			return func() { s.Resume(t) }
		},
		Restart:  func(drivertest.T) { s.Restart(t) },
		LoseData: func(drivertest.T) { s.Do(t, "FLUSHALL") },
	}
	drivertest.Run(t, h)
}

func TestClusterConformance(t *testing.T) {
	c := backends.RedisClusterOf(t, backends.RedisClusterOptions{NodeTimeout: time.Minute, NoReplicas: true})
	drivertest.Run(t, drivertest.Harness{
		Open: opens(clusterOf(t, c, 10*time.Second)), TTL: time.Second,
		LoseData: func(drivertest.T) {
			for _, s := range c.Nodes {
				s.Do(t, "FLUSHALL")
			}
		},
		LeaveOut: map[string]string{
			"break-held": "subscriptions are made with the first wait in a slot; a holder that never waited there learns with its next renewal",
		},
	})
}

// The lock as its users see it, on one server and in a cluster; there also in
// several processes.
func TestLocks(t *testing.T) {
	t.Parallel()
	s := backends.Redis(t, backends.RedisOptions{})
	locktest.Run(t, drivertest.Harness{Open: opens(clientOf(t, s)), TTL: 2 * time.Second})
}

func TestClusterLocks(t *testing.T) {
	t.Parallel()
	c := backends.RedisClusterOf(t, backends.RedisClusterOptions{NodeTimeout: time.Minute, NoReplicas: true})
	const ttl = 2 * time.Second
	t.Run("locks", func(t *testing.T) {
		t.Parallel()
		locktest.Run(t, drivertest.Harness{Open: opens(clusterOf(t, c, 10*time.Second)), TTL: ttl})
	})
	t.Run("processes", func(t *testing.T) {
		t.Parallel()
		procs.Run(t, procs.Store{Target: strings.Join(addrsOf(c), " "), TTL: ttl})
	})
}

// The same counts as with connections of the driver's own: two scripts for each
// acquisition, one message where somebody waits.
func TestCounts(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 4} {
		s := backends.Redis(t, backends.RedisOptions{})
		var clients []*holdfast.Client
		for range n {
			d, err := New(clientOf(t, s), nil)
			if err != nil {
				t.Fatal(err)
			}
			c, err := holdfast.New(d, holdfast.WithTTL(10*time.Minute)) // no renewals
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			clients = append(clients, c)
		}
		turn := func(c *holdfast.Client) {
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
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
			turn(c)
		}
		s.Do(t, "CONFIG", "RESETSTAT")
		const rounds = 10
		var wg sync.WaitGroup
		for _, c := range clients {
			wg.Go(func() {
				for range rounds {
					turn(c)
				}
			})
		}
		wg.Wait()
		scripts, pushes := s.Calls(t, "evalsha"), s.Calls(t, "publish")
		if scripts != 2*n*rounds || s.Calls(t, "eval") != 0 || pushes > n*rounds || n == 1 && pushes != 0 {
			t.Errorf("%d clients: %d acquisitions are %d scripts and %d messages", n, n*rounds, scripts, pushes)
		}
	}
}

// A primary is killed while locks in its slots, and others, are contended: every
// Lock returns, and tokens grow.
func TestFailover(t *testing.T) {
	t.Parallel()
	cluster := backends.RedisClusterOf(t, backends.RedisClusterOptions{})
	sentinels := backends.RedisSentinelsOf(t, backends.RedisSentinelOptions{})
	var addrs []string
	for _, s := range sentinels.Sentinels {
		addrs = append(addrs, s.Addr())
	}
	for what, c := range map[string]struct {
		open func() redis.UniversalClient
		kill func()
	}{
		"cluster": {
			func() redis.UniversalClient { return clusterOf(t, cluster, time.Second) },
			func() { cluster.Nodes[0].Crash(t) },
		},
		"sentinel": {
			func() redis.UniversalClient {
				c := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: backends.SentinelMaster, SentinelAddrs: addrs, ReadTimeout: time.Second})
				t.Cleanup(func() { c.Close() })
				return c
			},
			func() { sentinels.Nodes[0].Crash(t) },
		},
	} {
		t.Run(what, func(t *testing.T) {
			var clients []*holdfast.Client
			for range 2 {
				d, err := New(c.open(), nil)
				if err != nil {
					t.Fatal(err)
				}
				l, err := holdfast.New(d, holdfast.WithTTL(3*time.Second))
				if err != nil {
					t.Fatal(err)
				}
				defer l.Close()
				clients = append(clients, l)
			}
			var mu sync.Mutex
			last := make(map[string]uint64)
			turns := make(map[string]int)
			ctx, cancel := context.WithCancel(context.Background())
			var wg sync.WaitGroup
			for i := range 6 {
				name := fmt.Sprint("n", i)
				for _, l := range clients {
					wg.Go(func() {
						for ctx.Err() == nil {
							wait, done := context.WithTimeout(context.Background(), patience)
							hold, err := l.Mutex(name).Lock(wait)
							if wait.Err() != nil {
								t.Errorf("%s: a Lock hangs", name)
							}
							done()
							if err != nil {
								continue
							}
							mu.Lock()
							if hold.Token() <= last[name] && hold.Err() == nil {
								t.Errorf("%s: token %d after %d", name, hold.Token(), last[name])
							}
							last[name] = max(last[name], hold.Token())
							turns[name]++
							mu.Unlock()
							_ = hold.Unlock()
						}
					})
				}
			}
			progress := func(what string) {
				mu.Lock()
				before := make(map[string]int)
				for name, n := range turns {
					before[name] = n
				}
				mu.Unlock()
				for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
					mu.Lock()
					done := true
					for i := range 6 {
						name := fmt.Sprint("n", i)
						done = done && turns[name] >= before[name]+20
					}
					mu.Unlock()
					if done {
						return
					}
					if time.Now().After(end) {
						t.Fatalf("%s, not every lock is taken: %v, %v", what, before, turns)
					}
				}
			}
			defer wg.Wait()
			defer cancel()
			progress("at first")
			if what == "cluster" {
				confirmed(t, c.open(), cluster)
			}
			c.kill()
			progress("after the failover")
		})
	}
}

// confirmed sees that a grant is shown when replicas have it, and given back when
// they do not, whether it is the answer to a join or comes after a wait.
func confirmed(t *testing.T, client redis.UniversalClient, cluster *backends.RedisCluster) {
	t.Helper()
	d, err := New(client, &redislock.Options{MinReplicas: 1, ConfirmWithin: 200 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	l, err := holdfast.New(d, holdfast.WithTTL(5*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	m := l.Mutex("confirmed")
	lock := func(within time.Duration) (*holdfast.Hold, error) {
		ctx, cancel := context.WithTimeout(context.Background(), within)
		defer cancel()
		return m.Lock(ctx)
	}
	for range 10 {
		hold, err := lock(patience)
		if err != nil {
			t.Fatalf("with replicas: %v", err)
		}
		if err := hold.Unlock(); err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range cluster.Nodes[:3] {
		r := cluster.Replica(p)
		r.Pause(t)
		defer r.Resume(t)
		p.Do(t, "CLIENT", "KILL", "TYPE", "replica")
	}
	if hold, err := lock(2 * time.Second); err == nil {
		t.Errorf("without a replica, token %d is granted", hold.Token())
	} else if !errors.Is(err, redislock.ErrUnconfirmed) && !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("without a replica: %v", err)
	}
	line, err := d.Inspect(context.Background(), "confirmed")
	if err != nil || len(line.Tickets) != 0 {
		t.Errorf("what was not confirmed stays: %+v, %v", line.Tickets, err)
	}
}

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	s := backends.Redis(t, backends.RedisOptions{Password: "secret"})
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": s.Addr()}})
	defer ring.Close()
	none := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1})
	defer none.Close()
	stranger := redis.NewClient(&redis.Options{Addr: s.Addr()})
	defer stranger.Close()
	closed := redis.NewClient(&redis.Options{Addr: s.Addr(), Password: "secret"})
	closed.Close()
	single := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{s.Addr()}, Password: "secret", MaxRedirects: -1})
	defer single.Close()
	for what, c := range map[string]struct {
		client redis.UniversalClient
		o      *redislock.Options
		says   string
	}{
		"nothing":       {nil, nil, "nil"},
		"typed nil":     {(*redis.Client)(nil), nil, "nil"},
		"a ring":        {ring, nil, "neither"},
		"no server":     {none, nil, "refused"},
		"no password":   {stranger, nil, "NOAUTH"},
		"closed":        {closed, nil, "closed"},
		"no cluster":    {single, nil, ""},
		"a bad prefix":  {stranger, &redislock.Options{Prefix: strings.Repeat("x", 600)}, "prefix"},
		"guard/cluster": {single, &redislock.Options{RestartGuard: true}, "RestartGuard"},
	} {
		d, err := New(c.client, c.o)
		if err == nil {
			d.Close()
		}
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func ExampleNew() {
	client := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	defer client.Close()
	d, err := New(client, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	locks, err := holdfast.New(d)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locks.Close()
	_ = locks.Do(context.Background(), "invoice/42", func(ctx context.Context) error {
		fmt.Println("fencing token " + strconv.FormatUint(holdfast.Token(ctx, "invoice/42"), 10))
		return nil
	})
}
