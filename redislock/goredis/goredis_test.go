package goredis

import (
	"context"
	"errors"
	"flag"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivertest"
	"github.com/holdfast-go/holdfast/internal/redisrights"
	"github.com/holdfast-go/holdfast/internal/testkit/multiproc"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
	"github.com/holdfast-go/holdfast/redislock"
)

func TestMain(m *testing.M) {
	multiproc.Child(func(target string) (driver.Driver, error) {
		return New(redis.NewClusterClient(&redis.ClusterOptions{Addrs: strings.Split(target, " ")}), nil)
	})
	redis.SetLogger(quietly{}) // servers fail here on purpose
	flag.Parse()
	if err := flag.Set("test.parallel", "8"); err != nil { // the tests wait more than they work
		panic(err)
	}
	servers.Main(m)
}

type quietly struct{}

// Printf implements the client's logger.
func (quietly) Printf(context.Context, string, ...any) {}

// patience bounds each wait for an event; it only decides when to give up.
const patience = 30 * time.Second

func clientOf(t testing.TB, s *servers.RedisServer) *redis.Client {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: s.Addr(), Password: s.Password, PoolSize: 500})
	t.Cleanup(func() { c.Close() })
	return c
}

func clusterOf(t testing.TB, c *servers.RedisCluster, timeout time.Duration) *redis.ClusterClient {
	t.Helper()
	cc := redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs(), ReadTimeout: timeout, PoolSize: 500})
	t.Cleanup(func() { cc.Close() })
	return cc
}

// owner is a driver that closes its client with itself.
type owner struct {
	Driver
	c *redis.Client
}

// Close implements [driver.Driver].
func (o owner) Close() error { return errors.Join(o.Driver.Close(), o.c.Close()) }

// opens returns the Open of a harness: every driver has the one client.
func opens(c redis.UniversalClient) func(drivertest.T) driver.Driver {
	return func(t drivertest.T) driver.Driver {
		d, err := New(c, nil)
		if err != nil {
			t.Fatalf("New: %v", err)
		}
		return d
	}
}

// TestDriverConformance runs the suite. The client keeps connections for as
// long as it lives, so the suite does not count them. All drivers share the
// client, and each takes one connection of the pool for itself.
func TestDriverConformance(t *testing.T) {
	s := servers.Redis(t, servers.RedisOptions{})
	rules := redisrights.Documented(t, "../docs.go", "", redislock.DefaultPrefix)
	h := drivertest.Harness{
		TellsLeft: true,
		Rights: redisrights.Users(t, rules, []*servers.RedisServer{s}, func(user *url.Userinfo) (driver.Driver, error) {
			password, _ := user.Password()
			c := redis.NewClient(&redis.Options{Addr: s.Addr(), Username: user.Username(), Password: password})
			d, err := New(c, nil)
			if err != nil {
				_ = c.Close()
				return nil, err
			}
			return owner{d, c}, nil
		}),
		Open: opens(clientOf(t, s)), TTL: time.Second,
		Pause: func(drivertest.T) func() {
			s.Pause(t)
			return func() { s.Resume(t) }
		},
		Restart:  func(drivertest.T) { s.Restart(t) },
		LoseData: func(drivertest.T) { s.Do(t, "FLUSHALL") },
		LeaveOut: map[string]string{
			"close-silent": "a request ends with the time-out of the user's client, for at most 2 s of which Close waits",
		},
	}
	drivertest.Run(t, h)
}

// everyCase makes the second run of the suite complete.
var everyCase = flag.Bool("goredis.all", false, "run the whole suite in a cluster, too")

// TestClusterConformance runs, in a cluster, the cases that depend on the
// client: the nodes that it asks, the form of its answers, and its
// subscriptions. The rest is the cluster's driver, for which package redislock
// runs the whole suite.
func TestClusterConformance(t *testing.T) {
	leaveOut := map[string]string{
		"break-held": "subscriptions are made with the first wait in a slot; a holder that never waited there learns with its next renewal",
	}
	kept := []string{"join-", "try-", "leave-", "push-", "names", "nasty-", "identity", "close-", "waiting-", "lost-", "hammer-mutex", "hammer-cancel", "hammer-faults"}
	for _, c := range drivertest.Cases() {
		if !*everyCase && !slices.ContainsFunc(kept, func(k string) bool { return strings.HasPrefix(c.Name, k) }) {
			leaveOut[c.Name] = "run by package redislock; -goredis.all runs it here too"
		}
	}
	c := servers.RedisClusterOf(t, servers.RedisClusterOptions{NodeTimeout: time.Minute, NoReplicas: true})
	drivertest.Run(t, drivertest.Harness{
		Open: opens(clusterOf(t, c, 10*time.Second)), TTL: time.Second,
		LoseData: func(drivertest.T) {
			for _, s := range c.Nodes {
				s.Do(t, "FLUSHALL")
			}
		},
		LeaveOut: leaveOut,
	})
}

// TestLocks runs the suite of the core's locks, on one server and in a
// cluster; in the cluster also in several processes.
func TestLocks(t *testing.T) {
	t.Parallel()
	s := servers.Redis(t, servers.RedisOptions{})
	drivertest.RunLocks(t, drivertest.Harness{Open: opens(clientOf(t, s)), TTL: 4 * time.Second}) // renewed beside many others
}

func TestClusterLocks(t *testing.T) {
	t.Parallel()
	c := servers.RedisClusterOf(t, servers.RedisClusterOptions{NodeTimeout: time.Minute, NoReplicas: true})
	const ttl = 4 * time.Second
	t.Run("locks", func(t *testing.T) {
		t.Parallel()
		drivertest.RunLocks(t, drivertest.Harness{Open: opens(clusterOf(t, c, 10*time.Second)), TTL: ttl})
	})
	t.Run("processes", func(t *testing.T) {
		t.Parallel()
		multiproc.Run(t, multiproc.Store{Target: strings.Join(c.Addrs(), " "), TTL: ttl})
	})
}

// TestCountsOfRequests checks that the counts are the same as with connections
// of the driver's own: two scripts for each acquisition, and one message if
// there is a waiter.
func TestCountsOfRequests(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 4} {
		s := servers.Redis(t, servers.RedisOptions{})
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

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	s := servers.Redis(t, servers.RedisOptions{Password: "secret"})
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
