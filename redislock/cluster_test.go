package redislock

import (
	"context"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivertest"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
)

// openCluster opens a driver, which the end of the test closes.
func openCluster(t testing.TB, c *servers.RedisCluster, query string) *Cluster {
	t.Helper()
	return openAt(t, OpenCluster, c.URL(query))
}

// clusterHarness describes a cluster of the test's own to the suite. Its
// nodes' time-outs are long, so that the cluster stays as it is while all
// nodes are paused. Of its three nodes, the number older are older than Redis
// 7.
func clusterHarness(t *testing.T, older int) drivertest.Harness {
	clock := servers.NewClock(t, t.TempDir())
	c := servers.RedisClusterOf(t, servers.RedisClusterOptions{
		Redis: servers.RedisOptions{Env: clock.Env()}, NodeTimeout: time.Minute, NoReplicas: true, Older: older,
	})
	all := func(f func(s *servers.RedisServer)) {
		for _, s := range c.Nodes {
			f(s)
		}
	}
	t.Cleanup(func() {
		all(func(s *servers.RedisServer) {
			for _, entry := range s.Do(t, "ACL", "LOG").([]any) {
				if fields := entry.([]any); !slices.Contains(fields, any("username")) || slices.Contains(fields, any("default")) {
					t.Errorf("a node was asked for what it does not have: %v", entry)
				}
			}
		})
	})
	h := drivertest.Harness{
		TellsLeft: true,
		Open: func(dt drivertest.T) driver.Driver {
			d, err := OpenCluster(context.Background(), c.URL("timeout=10s"))
			if err != nil {
				dt.Fatalf("OpenCluster: %v", err)
			}
			return d
		},
		OpenAt: func(ctx context.Context, address string) (driver.Driver, error) {
			return OpenCluster(ctx, "redis-cluster://"+address)
		},
		TTL: time.Second,
		Pause: func(drivertest.T) func() {
			all(func(s *servers.RedisServer) { s.Pause(t) })
			return func() { all(func(s *servers.RedisServer) { s.Resume(t) }) }
		},
		LoseData: func(drivertest.T) { all(func(s *servers.RedisServer) { s.Do(t, "FLUSHALL") }) },
		Snapshot: func(drivertest.T) func() {
			var restore []func()
			all(func(s *servers.RedisServer) { restore = append(restore, snapshotOf(t, s)) })
			return func() {
				for _, f := range restore {
					f()
				}
			}
		},
		StepClock: func(_ drivertest.T, d time.Duration) { clock.Step(t, d) },
		Connections: func(drivertest.T) (n int) {
			all(func(s *servers.RedisServer) {
				k, _ := strconv.Atoi(s.Info(t, "clients", "connected_clients"))
				n += k
			})
			return n
		},
	}
	if older == 0 { // all nodes have the rights of Redis 7
		h.Rights = rightsIn(t, c)
	}
	return h
}

func TestClusterConformance(t *testing.T) {
	h := clusterHarness(t, 0)
	h.LeaveOut = map[string]string{
		"break-held":      "subscriptions are made with the first wait in a slot; a holder that never waited there learns with its next renewal",
		"clock-back-dead": clockBack,
	}
	drivertest.Run(t, h)
}

func TestClusterLocks(t *testing.T) {
	t.Parallel()
	h := clusterHarness(t, 0)
	h.TTL = 4 * time.Second // a busy machine can renew its leases in time
	drivertest.RunLocks(t, h)
}
