package redislock

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivertest"
	"github.com/holdfast-go/holdfast/drivertest/locktest"
	"github.com/holdfast-go/holdfast/internal/backends"
)

// openCluster opens a driver that the test closes.
func openCluster(t testing.TB, c *backends.RedisCluster, query string) *Cluster {
	t.Helper()
	return openAt(t, OpenCluster, c.URL(query))
}

// clusterHarness describes a cluster of the test's own to the suite. Its nodes
// are patient with one another, so that it stays as it is while all are paused.
// So many of its three nodes are of before Redis 7.
func clusterHarness(t *testing.T, older int) drivertest.Harness {
	clock := backends.NewClock(t, t.TempDir())
	c := backends.RedisClusterOf(t, backends.RedisClusterOptions{
		Redis: backends.RedisOptions{Env: clock.Env()}, NodeTimeout: time.Minute, NoReplicas: true, Older: older,
	})
	all := func(f func(s *backends.RedisServer)) {
		for _, s := range c.Nodes {
			f(s)
		}
	}
	t.Cleanup(func() {
		all(func(s *backends.RedisServer) {
			if log := s.Do(t, "ACL", "LOG").([]any); len(log) > 0 {
				t.Errorf("a node was asked for what it does not have: %v", log)
			}
		})
	})
	return drivertest.Harness{
		Open: func(dt drivertest.T) driver.Driver {
			d, err := OpenCluster(context.Background(), c.URL("timeout=10s"))
			if err != nil {
				dt.Fatalf("OpenCluster: %v", err)
			}
			return d
		},
		TTL: time.Second,
		Pause: func(drivertest.T) func() {
			all(func(s *backends.RedisServer) { s.Pause(t) })
			return func() { all(func(s *backends.RedisServer) { s.Resume(t) }) }
		},
		LoseData: func(drivertest.T) { all(func(s *backends.RedisServer) { s.Do(t, "FLUSHALL") }) },
		Snapshot: func(drivertest.T) func() {
			var restore []func()
			all(func(s *backends.RedisServer) { restore = append(restore, snapshotOf(t, s)) })
			return func() {
				for _, f := range restore {
					f()
				}
			}
		},
		StepClock: func(_ drivertest.T, d time.Duration) { clock.Step(t, d) },
		Connections: func(drivertest.T) (n int) {
			all(func(s *backends.RedisServer) {
				k, _ := strconv.Atoi(s.Info(t, "clients", "connected_clients"))
				n += k
			})
			return n
		},
	}
}

func TestClusterConformance(t *testing.T) {
	h := clusterHarness(t, 0)
	h.LeaveOut = map[string]string{
		"break-held": "subscriptions are made with the first wait in a slot; a holder that never waited there learns with its next renewal",
	}
	drivertest.Run(t, h)
}

func TestClusterLocks(t *testing.T) {
	t.Parallel()
	locktest.Run(t, clusterHarness(t, 0))
}
