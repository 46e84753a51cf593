package redislock

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/backends"
)

// opens tries to open a driver.
func opens[D driver.Driver](open func(context.Context, string) (D, error), url string) func(context.Context) error {
	return func(ctx context.Context) error {
		d, err := open(ctx, url)
		if err == nil {
			_ = d.Close()
		}
		return err
	}
}

// Answers that cannot be understood.
func TestF11_GarbledAnswers(t *testing.T) {
	t.Parallel()
	s := backends.SharedRedis(t)
	g := backends.Garble(t, s.Addr())
	url := "redis://" + g.Addr()
	(&backends.Garbling{
		At: []*backends.Garbler{g}, Driver: openAt(t, Open, url), Direct: openOn(t, s, ""), Wanted: true,
		Open: opens(Open, url),
	}).Run(t)
}

// A server that refused the connection for renewals takes them when it has one
// again: what it said once is not the answer to all that is asked there.
func TestF35_RefusedOnceIsNotForever(t *testing.T) {
	t.Parallel()
	g := backends.Garble(t, backends.SharedRedis(t).Addr())
	m := listen(t, openAt(t, Open, "redis://"+g.Addr()))
	k := m.ticket("refused once/" + m.uuid)
	m.take(k, driver.Held)
	heal := g.Spoil(func([]byte) ([]byte, bool) { return []byte("-ERR max number of clients reached\r\n"), true })
	for range 5 { // the first end the connection that there was
		if ps, err := m.Renew(m.ctx(), []driver.Ref{ref(k)}); err == nil && ps[0].Err == nil {
			t.Error("it was renewed")
		}
	}
	heal()
	if p := m.settles(k); p.State != driver.Held {
		t.Errorf("afterwards it is %v", p.State)
	}
}

// The primary cannot be understood, and then the Sentinels cannot: these are
// asked when something is wrong, and nobody who holds is to feel it. Beside that, the
// primary has no tokens left.
//
// Covers: F67.
func TestF11_SentinelGarbledAnswers(t *testing.T) {
	t.Parallel()
	s := backends.RedisSentinelsOf(t, backends.RedisSentinelOptions{DownAfter: 600_000})
	direct := openSentinel(t, s, "")
	t.Run("primary", func(t *testing.T) {
		g := backends.Garble(t, s.Nodes[0].Addr())
		for _, n := range s.Sentinels {
			n.Do(t, "SENTINEL", "MONITOR", "garbled", "127.0.0.1", strconv.Itoa(g.Port), "2")
			t.Cleanup(func() { n.Do(t, "SENTINEL", "REMOVE", "garbled") })
		}
		url := strings.Replace(s.URL(""), "/"+backends.SentinelMaster, "/garbled", 1)
		(&backends.Garbling{
			At: []*backends.Garbler{g}, Driver: openAt(t, OpenSentinel, url), Direct: direct, Wanted: true,
			Open: opens(OpenSentinel, url),
		}).Run(t)
	})
	t.Run("tokens", func(t *testing.T) {
		tokensEnd(t, listen(t, openSentinel(t, s, "")), func(string) *backends.RedisServer { return s.Nodes[0] })
	})
	t.Run("guides", func(t *testing.T) {
		url := s.URL("")
		var all []*backends.Garbler
		for _, n := range s.Sentinels {
			g := backends.Garble(t, n.Addr())
			url = strings.Replace(url, n.Addr(), g.Addr(), 1)
			all = append(all, g)
		}
		d := openAt(t, OpenSentinel, url)
		said := func(text string) backends.Spoil {
			return func([]byte) ([]byte, bool) { return []byte(text), true }
		}
		(&backends.Garbling{
			At: all, Driver: d, Direct: direct, Wanted: true, Serves: true, Asks: d.guides.doubt,
			Open: opens(OpenSentinel, url),
			More: map[string]backends.Spoil{
				"an address without a port": said("*1\r\n$9\r\n127.0.0.1\r\n"),
				"half of a port":            said("*2\r\n$9\r\n127.0.0.1\r\n$1\r\n6\r\n"),
				"no address":                said("*2\r\n$-1\r\n$-1\r\n"),
				"lists in lists":            said("*2\r\n*1\r\n*0\r\n*0\r\n"),
			},
		}).Run(t)
	})
}

// No node of a cluster can be understood, whether it is asked for a lock or who
// has which slot. Some say that a slot is elsewhere, which is nowhere.
//
// They name their ports alone, so that who comes to another loopback address
// stays there.
func TestF11_ClusterGarbledAnswers(t *testing.T) {
	t.Parallel()
	c := backends.RedisClusterOf(t, backends.RedisClusterOptions{NoReplicas: true})
	const host = "127.0.11.1"
	var all []*backends.Garbler
	var addrs []string
	for _, s := range c.Nodes {
		if _, err := s.Try("CONFIG", "SET", "cluster-preferred-endpoint-type", "unknown-endpoint"); err != nil {
			backends.Lack(t, fmt.Sprintf("before Redis 7 a node of a cluster names the hosts of all: %v; leave HOLDFAST_REDIS_SERVER unset", err))
		}
		g := backends.GarbleAt(t, net.JoinHostPort(host, strconv.Itoa(s.Port)), s.Addr())
		all, addrs = append(all, g), append(addrs, g.Addr())
	}
	url := "redis-cluster://" + strings.Join(addrs, ",")
	said := func(text string) backends.Spoil {
		return func([]byte) ([]byte, bool) { return []byte(text), true }
	}
	(&backends.Garbling{
		At: all, Driver: openAt(t, OpenCluster, url), Direct: openCluster(t, c, ""), Wanted: true,
		Open: opens(OpenCluster, url),
		More: map[string]backends.Spoil{
			"moved to nowhere":          said("-MOVED 0 :0\r\n"),
			"moved to no address":       said("-MOVED 16383 nowhere\r\n"),
			"moved beyond the last":     said("-MOVED 16384 127.0.0.1:1\r\n"),
			"moved to a port too far":   said("-MOVED 1 127.0.0.1:99999999\r\n"),
			"moved":                     said("-MOVED\r\n"),
			"ahead at nowhere":          said("-ASK 1 :0\r\n"),
			"no slots":                  said("*0\r\n"),
			"slots beyond the last":     said("*1\r\n*3\r\n:0\r\n:99999\r\n*2\r\n$9\r\n127.0.0.1\r\n:1\r\n"),
			"slots of a node with half": said("*1\r\n*3\r\n:0\r\n:16383\r\n*1\r\n$9\r\n127.0.0.1\r\n"),
		},
	}).Run(t)
}
