package redislock

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testkit/faultproxy"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
	"github.com/holdfast-go/holdfast/redislock/internal/wire"
)

// TestF1_ClusterEveryStepCut cuts every message to the node that has the
// queue's slot, in every request, in a cluster of three.
//
// Nodes send their clients the addresses of the others. These nodes send ports
// alone, which a client looks for at the host that it connected to. So each
// client that is cut off has a loopback address of its own, with a proxy for
// every node.
//
// Covers: F1, F2, F4.
func TestF1_ClusterEveryStepCut(t *testing.T) {
	t.Parallel()
	faultproxy.EveryStep(t, clusterBehind(portCluster(t), "cut"))
}

// portCluster starts a cluster whose nodes send ports alone.
func portCluster(t *testing.T) *servers.RedisCluster {
	c := servers.RedisClusterOf(t, servers.RedisClusterOptions{NodeTimeout: time.Minute, NoReplicas: true})
	for _, s := range c.Nodes {
		if _, err := s.Try("CONFIG", "SET", "cluster-preferred-endpoint-type", "unknown-endpoint"); err != nil {
			servers.Lack(t, fmt.Sprintf("before Redis 7 a node of a cluster names the hosts of all: %v; leave HOLDFAST_REDIS_SERVER unset", err))
		}
	}
	return c
}

// lastHost is the last loopback address that was given to a client.
var lastHost atomic.Int64

// clusterBehind is a cluster whose first node is reached by way of a proxy.
// All names are in the first node's slots.
func clusterBehind(c *servers.RedisCluster, prefix string) faultproxy.Subject {
	return faultproxy.Subject{
		Target: c.Nodes[0].Addr(), TTL: time.Minute,
		Listen: func() string {
			return net.JoinHostPort(fmt.Sprint("127.0.0.", 1+lastHost.Add(1)), strconv.Itoa(c.Nodes[0].Port))
		},
		Open: func(t testing.TB, addr string) driver.Driver {
			host := hostOf(addr)
			addrs := []string{addr}
			for _, s := range c.Nodes[1:] {
				other := net.JoinHostPort(host, strconv.Itoa(s.Port))
				if other != s.Addr() {
					faultproxy.At(t, other, s.Addr())
				}
				addrs = append(addrs, other)
			}
			return openAt(t, OpenCluster, "redis-cluster://"+strings.Join(addrs, ",")+"?prefix="+prefix)
		},
		Named: func(name string) string {
			for i := 0; ; i++ { // the first node has the first third
				if named := fmt.Sprint(name, " ", i); wire.Slot(wire.HoldersKey(prefix, named)) < wire.Slots/3 {
					return named
				}
			}
		},
	}
}

// TestF1_SentinelEveryStepCut cuts every message to the primary, in every
// request. The Sentinel knows the primary by the proxy's address, under a name
// of its own for each client.
//
// Covers: F1, F2, F4.
func TestF1_SentinelEveryStepCut(t *testing.T) {
	t.Parallel()
	primary, guide := servers.SharedRedis(t), quietSentinel(t)
	faultproxy.EveryStep(t, faultproxy.Subject{Target: primary.Addr(), TTL: time.Minute, Open: func(t testing.TB, addr string) driver.Driver {
		return guided(t, guide, addr, "cut-sentinel")
	}})
}

// quietSentinel starts a Sentinel that asks each primary for its identity once,
// by way of the proxy, and then sends nothing more: its messages would be
// counted with those of the client.
func quietSentinel(t *testing.T) *servers.RedisServer {
	guide := servers.RedisSentinelsOf(t, servers.RedisSentinelOptions{DownAfter: 600_000}).Sentinels[0]
	quiet := []string{"SENTINEL", "DEBUG"}
	for _, period := range []string{"ping-period", "info-period", "publish-period", "ask-period"} {
		quiet = append(quiet, period, strconv.FormatInt(time.Hour.Milliseconds(), 10))
	}
	if _, err := guide.Try(quiet...); err != nil {
		servers.Lack(t, fmt.Sprintf("before Redis 7 a Sentinel cannot be made to keep quiet: %v; leave HOLDFAST_REDIS_SERVER unset", err))
	}
	return guide
}

// monitored counts the names under which Sentinels know primaries.
var monitored atomic.Int64

// guided opens a driver on a primary at an address that a Sentinel gives.
func guided(t testing.TB, guide *servers.RedisServer, addr, prefix string) driver.Driver {
	name := fmt.Sprint("guided", monitored.Add(1))
	host, port, _ := net.SplitHostPort(addr)
	guide.Do(t, "SENTINEL", "MONITOR", name, host, port, "1")
	t.Cleanup(func() { guide.Do(t, "SENTINEL", "REMOVE", name) })
	eventually(t, "the Sentinel has asked the primary", func() bool { return asked(t, guide, name) })
	return openAt(t, OpenSentinel, "redis-sentinel://"+guide.Addr()+"/"+name+"?prefix="+prefix)
}

// asked reports whether a Sentinel has had all answers that it wants from a
// primary at first.
func asked(t testing.TB, guide *servers.RedisServer, name string) bool {
	said, _ := guide.Do(t, "SENTINEL", "MASTER", name).([]any)
	fields := map[string]string{}
	for i := 0; i+1 < len(said); i += 2 {
		k, _ := said[i].(string)
		fields[k], _ = said[i+1].(string)
	}
	refresh, err := strconv.ParseInt(fields["info-refresh"], 10, 64)
	// Until the first answer, the time is counted from 1970.
	return err == nil && refresh < time.Hour.Milliseconds() && fields["link-pending-commands"] == "0"
}
