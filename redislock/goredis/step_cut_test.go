package goredis

import (
	"context"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivertest/cuts"
	"github.com/holdfast-go/holdfast/internal/backends"
	"github.com/holdfast-go/holdfast/redislock"
)

// on makes a driver on a client, both of which end with the test.
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

// Every message of every request is cut.
//
// Covers: F1, F2, F4.
func TestF1_EveryStepCut(t *testing.T) {
	t.Parallel()
	s := backends.SharedRedis(t)
	cuts.EveryStep(t, cuts.Subject{Target: s.Addr(), TTL: time.Minute, Open: func(t testing.TB, addr string) driver.Driver {
		return on(t, redis.NewClient(&redis.Options{Addr: addr}))
	}})
}

// Every message to the node that has the line's slot is cut, in every request,
// in a cluster of three: the client goes to that node by way of the proxy.
//
// Covers: F1, F2, F4.
func TestF1_ClusterEveryStepCut(t *testing.T) {
	t.Parallel()
	c := backends.SharedRedisCluster(t)
	target := c.Nodes[0].Addr()
	cuts.EveryStep(t, cuts.Subject{
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
		Named: func(name string) string {
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
		},
	})
}
