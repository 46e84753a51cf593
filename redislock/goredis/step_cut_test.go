package goredis

import (
	"context"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testkit/faultproxy"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
	"github.com/holdfast-go/holdfast/redislock"
)

// on opens a driver on a client. The end of the test closes both.
func on(t testing.TB, c redis.UniversalClient) driver.Driver {
	t.Helper()
	t.Cleanup(func() { _ = c.Close() })
	d, err := New(c, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

// TestF1_EveryStepCut cuts every message of every request.
//
// Covers: F1, F2, F4.
func TestF1_EveryStepCut(t *testing.T) {
	t.Parallel()
	s := servers.SharedRedis(t)
	faultproxy.EveryStep(t, faultproxy.Subject{Target: s.Addr(), TTL: time.Minute, Open: func(t testing.TB, addr string) driver.Driver {
		return on(t, redis.NewClient(&redis.Options{Addr: addr}))
	}})
}

// TestF1_ClusterEveryStepCut cuts every message to the node that has the
// queue's slot, in every request, in a cluster of three: the client reaches
// that node by way of the proxy.
//
// Covers: F1, F2, F4.
func TestF1_ClusterEveryStepCut(t *testing.T) {
	t.Parallel()
	c := servers.SharedRedisCluster(t)
	target := c.Nodes[0].Addr()
	faultproxy.EveryStep(t, faultproxy.Subject{
		Target: target, TTL: time.Minute,
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
	})
}

// inFirstThird extends a name to one that falls in the slots of the first
// node.
func inFirstThird(t *testing.T, c *servers.RedisCluster, name string) string {
	for i := 0; ; i++ {
		named := fmt.Sprint(name, " ", i)
		n, err := c.Nodes[0].Try("CLUSTER", "KEYSLOT", redislock.DefaultPrefix+named)
		if err != nil {
			t.Error(err)
			return named
		}
		if n.(int64) < 16384/3 { // the first node has the first third
			return named
		}
	}
}
