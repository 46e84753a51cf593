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
	"github.com/holdfast-go/holdfast/drivertest/cuts"
	"github.com/holdfast-go/holdfast/internal/backends"
)

// Every message to the node that has the line's slot is cut, in every request,
// in a cluster of three.
//
// Nodes tell a client where the others are. These name ports alone, which
// clients look for at the host that they came to: each client that is cut off
// has a loopback address of its own, with a proxy for every node.
//
// Covers: F1, F2, F4.
func TestF1_ClusterEveryStepCut(t *testing.T) {
	t.Parallel()
	c := backends.RedisClusterOf(t, backends.RedisClusterOptions{NodeTimeout: time.Minute, NoReplicas: true})
	for _, s := range c.Nodes {
		if _, err := s.Try("CONFIG", "SET", "cluster-preferred-endpoint-type", "unknown-endpoint"); err != nil {
			backends.Lack(t, fmt.Sprintf("before Redis 7 a node of a cluster names the hosts of all: %v; leave HOLDFAST_REDIS_SERVER unset", err))
		}
	}
	var hosts atomic.Int64
	cuts.EveryStep(t, cuts.Subject{
		Target: c.Nodes[0].Addr(), TTL: time.Minute,
		Listen: func() string {
			host := fmt.Sprint("127.0.0.", 1+hosts.Add(1))
			return net.JoinHostPort(host, strconv.Itoa(c.Nodes[0].Port))
		},
		Open: func(t testing.TB, addr string) driver.Driver {
			host := hostOf(addr)
			addrs := []string{addr}
			for _, s := range c.Nodes[1:] {
				other := net.JoinHostPort(host, strconv.Itoa(s.Port))
				if other != s.Addr() {
					cuts.At(t, other, s.Addr())
				}
				addrs = append(addrs, other)
			}
			d, err := OpenCluster(t.Context(), "redis-cluster://"+strings.Join(addrs, ",")+"?prefix=cut")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = d.Close() })
			return d
		},
		Named: func(name string) string {
			for i := 0; ; i++ { // the first node has the first third
				if named := fmt.Sprint(name, " ", i); slot(lineKey("cut", named)) < slots/3 {
					return named
				}
			}
		},
	})
}

// Every message to the primary is cut, in every request. The Sentinel calls it
// by the address of the proxy, by a name of its own for each client.
//
// Covers: F1, F2, F4.
func TestF1_SentinelEveryStepCut(t *testing.T) {
	t.Parallel()
	primary := backends.SharedRedis(t)
	guide := backends.RedisSentinelsOf(t, backends.RedisSentinelOptions{}).Sentinels[0]
	// It asks each primary once who it is, by way of the proxy, and is then to
	// keep quiet: its messages would be counted with those of the client.
	quiet := []string{"SENTINEL", "DEBUG"}
	for _, period := range []string{"ping-period", "info-period", "publish-period", "ask-period"} {
		quiet = append(quiet, period, strconv.FormatInt(time.Hour.Milliseconds(), 10))
	}
	if _, err := guide.Try(quiet...); err != nil {
		backends.Lack(t, fmt.Sprintf("before Redis 7 a Sentinel cannot be made to keep quiet: %v; leave HOLDFAST_REDIS_SERVER unset", err))
	}
	var names atomic.Int64
	cuts.EveryStep(t, cuts.Subject{
		Target: primary.Addr(), TTL: time.Minute,
		Open: func(t testing.TB, addr string) driver.Driver {
			name := fmt.Sprint("cut", names.Add(1))
			host, port, _ := net.SplitHostPort(addr)
			guide.Do(t, "SENTINEL", "MONITOR", name, host, port, "1")
			t.Cleanup(func() { guide.Do(t, "SENTINEL", "REMOVE", name) })
			eventually(t, "the Sentinel has asked the primary", func() bool { return asked(t, guide, name) })
			d, err := OpenSentinel(t.Context(), "redis-sentinel://"+guide.Addr()+"/"+name+"?prefix=cut-sentinel")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = d.Close() })
			return d
		},
	})
}

// asked says whether a Sentinel has had an answer to all that it asks a primary
// at first.
func asked(t testing.TB, guide *backends.RedisServer, name string) bool {
	said, _ := guide.Do(t, "SENTINEL", "MASTER", name).([]any)
	fields := map[string]string{}
	for i := 0; i+1 < len(said); i += 2 {
		k, _ := said[i].(string)
		fields[k], _ = said[i+1].(string)
	}
	refresh, err := strconv.ParseInt(fields["info-refresh"], 10, 64)
	// Until the first answer it is since 1970.
	return err == nil && refresh < time.Hour.Milliseconds() && fields["link-pending-commands"] == "0"
}
