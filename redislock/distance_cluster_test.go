package redislock

import (
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testkit/faultproxy"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
)

// TestF115_SentinelHalfOpenLosesNoHold checks that no hold is lost when
// connections to the primary fall silent.
//
// Covers: F115 on sentinel.
func TestF115_SentinelHalfOpenLosesNoHold(t *testing.T) {
	t.Parallel()
	guide := quietSentinel(t)
	faultproxy.HalfOpen(t, faultproxy.Subject{Target: servers.SharedRedis(t).Addr(), Open: func(t testing.TB, addr string) driver.Driver {
		return guided(t, guide, addr, "half-sentinel")
	}}, 3*time.Second, 5*time.Second)
}

// TestF115_ClusterHalfOpenLosesNoHold checks that no hold is lost when
// connections to a node fall silent.
//
// Covers: F115 on cluster.
func TestF115_ClusterHalfOpenLosesNoHold(t *testing.T) {
	t.Parallel()
	faultproxy.HalfOpen(t, clusterBehind(portCluster(t), "half"), 3*time.Second, 5*time.Second)
}

// TestF121_SentinelDistantKeepsManyPlaces checks that a client far from the
// primary, which it finds by Sentinels, keeps many places of each kind.
//
// Covers: F121 on sentinel.
func TestF121_SentinelDistantKeepsManyPlaces(t *testing.T) {
	t.Parallel()
	guide := quietSentinel(t)
	faultproxy.Latency(t, faultproxy.Distant{
		Targets: []string{servers.SharedRedis(t).Addr()},
		Open:    func(t testing.TB, addrs []string) driver.Driver { return guided(t, guide, addrs[0], "far-sentinel") },
	})
}

// TestF121_ClusterDistantKeepsManyPlaces checks that a client far from all
// nodes of a cluster keeps many places of each kind. The renewals of each node
// are one request.
//
// Covers: F121 on cluster.
func TestF121_ClusterDistantKeepsManyPlaces(t *testing.T) {
	t.Parallel()
	c := portCluster(t)
	var targets []string
	for _, s := range c.Nodes {
		targets = append(targets, s.Addr())
	}
	host, listens := "", 0
	faultproxy.Latency(t, faultproxy.Distant{
		Targets: targets,
		Listen: func() string { // all proxies of one client are at one host
			if listens%len(targets) == 0 {
				host = "127.0.0." + strconv.FormatInt(1+lastHost.Add(1), 10)
			}
			listens++
			return net.JoinHostPort(host, strconv.Itoa(c.Nodes[(listens-1)%len(targets)].Port))
		},
		Open: func(t testing.TB, addrs []string) driver.Driver {
			return openAt(t, OpenCluster, "redis-cluster://"+strings.Join(addrs, ",")+"?prefix=far")
		},
	})
}
