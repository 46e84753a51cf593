package goredis

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testkit/faultproxy"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
)

// TestF115_HalfOpenLosesNoHold checks that no hold is lost when all connections
// of the client's pool fall silent.
//
// Covers: F115 on redis.
func TestF115_HalfOpenLosesNoHold(t *testing.T) {
	t.Parallel()
	s := servers.SharedRedis(t)
	faultproxy.HalfOpen(t, faultproxy.Subject{Target: s.Addr(), Open: func(t testing.TB, addr string) driver.Driver {
		return on(t, redis.NewClient(&redis.Options{Addr: addr}))
	}}, 3*time.Second, 5*time.Second)
}

// TestF115_ClusterHalfOpenLosesNoHold checks the same for a node of a cluster.
//
// Covers: F115 on cluster.
func TestF115_ClusterHalfOpenLosesNoHold(t *testing.T) {
	t.Parallel()
	c := servers.SharedRedisCluster(t)
	target := c.Nodes[0].Addr()
	faultproxy.HalfOpen(t, faultproxy.Subject{
		Target: target,
		Open: func(t testing.TB, addr string) driver.Driver {
			return on(t, redis.NewClusterClient(&redis.ClusterOptions{
				Addrs: c.Addrs(),
				Dialer: func(ctx context.Context, network, to string) (net.Conn, error) {
					if to == target {
						to = addr
					}
					return new(net.Dialer).DialContext(ctx, network, to)
				},
			}))
		},
		Named: func(name string) string { return inFirstThird(t, c, name) },
	}, 3*time.Second, 5*time.Second)
}
