package redislock

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
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

// TestF11_GarbledAnswers checks answers that cannot be understood.
func TestF11_GarbledAnswers(t *testing.T) {
	t.Parallel()
	s := servers.SharedRedis(t)
	g := servers.Garble(t, s.Addr())
	url := "redis://" + g.Addr()
	(&servers.Garbling{
		At: []*servers.Garbler{g}, Driver: openAt(t, Open, url), Direct: openOn(t, s, ""), Wanted: true,
		Open: opens(Open, url),
	}).Run(t)
}

// TestF35_RenewalsWorkAfterRefusal checks that renewals work again once a
// server that refused their connection accepts one: the refusal is not the
// answer to all later commands.
func TestF35_RenewalsWorkAfterRefusal(t *testing.T) {
	t.Parallel()
	g := servers.Garble(t, servers.SharedRedis(t).Addr())
	m := listen(t, openAt(t, Open, "redis://"+g.Addr()))
	k := m.ticket("refused once/" + m.uuid)
	m.take(k, driver.Held)
	heal := g.Spoil(func([]byte) ([]byte, bool) { return []byte("-ERR max number of clients reached\r\n"), true })
	for range 5 { // the first answers end the connection that was open
		if ps, err := m.Renew(m.ctx(), []driver.Ref{ref(k)}); err == nil && ps[0].Err == nil {
			t.Error("it was renewed")
		}
	}
	heal()
	if p := m.settles(k); p.State != driver.Held {
		t.Errorf("afterwards it is %v", p.State)
	}
}

// TestF11_SentinelGarbledAnswers garbles the answers of the primary, and then
// those of the Sentinels, which are asked only when something is wrong: no
// holder is affected. Besides, the primary has no tokens left.
//
// Covers: F67.
func TestF11_SentinelGarbledAnswers(t *testing.T) {
	t.Parallel()
	s := servers.RedisSentinelsOf(t, servers.RedisSentinelOptions{DownAfter: 600_000})
	direct := openSentinel(t, s, "")
	t.Run("primary", func(t *testing.T) {
		g := servers.Garble(t, s.Nodes[0].Addr())
		for _, n := range s.Sentinels {
			n.Do(t, "SENTINEL", "MONITOR", "garbled", "127.0.0.1", strconv.Itoa(g.Port), "2")
			t.Cleanup(func() { n.Do(t, "SENTINEL", "REMOVE", "garbled") })
		}
		url := strings.Replace(s.URL(""), "/"+servers.SentinelMaster, "/garbled", 1)
		(&servers.Garbling{
			At: []*servers.Garbler{g}, Driver: openAt(t, OpenSentinel, url), Direct: direct, Wanted: true,
			Open: opens(OpenSentinel, url),
		}).Run(t)
	})
	t.Run("tokens", func(t *testing.T) {
		tokensEnd(t, listen(t, openSentinel(t, s, "")), func(string) *servers.RedisServer { return s.Nodes[0] })
	})
	t.Run("guides", func(t *testing.T) {
		url := s.URL("")
		var all []*servers.Garbler
		for _, n := range s.Sentinels {
			g := servers.Garble(t, n.Addr())
			url = strings.Replace(url, n.Addr(), g.Addr(), 1)
			all = append(all, g)
		}
		d := openAt(t, OpenSentinel, url)
		said := func(text string) servers.Spoil {
			return func([]byte) ([]byte, bool) { return []byte(text), true }
		}
		(&servers.Garbling{
			At: all, Driver: d, Direct: direct, Wanted: true, Serves: true, Asks: func() { d.primary.NoteError(driver.Errorf(driver.Unknown, "a doubt")) },
			Open: opens(OpenSentinel, url),
			More: map[string]servers.Spoil{
				"an address without a port": said("*1\r\n$9\r\n127.0.0.1\r\n"),
				"half of a port":            said("*2\r\n$9\r\n127.0.0.1\r\n$1\r\n6\r\n"),
				"no address":                said("*2\r\n$-1\r\n$-1\r\n"),
				"lists in lists":            said("*2\r\n*1\r\n*0\r\n*0\r\n"),
			},
		}).Run(t)
	})
}

// TestF11_ClusterGarbledAnswers garbles the answers of all nodes, to requests
// about locks and about slots. Some answers redirect to a node that does not
// exist.
//
// The nodes give only their ports, so that a client which connects to another
// loopback address stays there.
func TestF11_ClusterGarbledAnswers(t *testing.T) {
	t.Parallel()
	c := servers.RedisClusterOf(t, servers.RedisClusterOptions{NodeTimeout: time.Minute, NoReplicas: true})
	const host = "127.0.11.1"
	var all []*servers.Garbler
	var addrs []string
	for _, s := range c.Nodes {
		if _, err := s.Try("CONFIG", "SET", "cluster-preferred-endpoint-type", "unknown-endpoint"); err != nil {
			servers.Lack(t, fmt.Sprintf("before Redis 7 a node of a cluster names the hosts of all: %v; leave HOLDFAST_REDIS_SERVER unset", err))
		}
		g := servers.GarbleAt(t, net.JoinHostPort(host, strconv.Itoa(s.Port)), s.Addr())
		all, addrs = append(all, g), append(addrs, g.Addr())
	}
	url := "redis-cluster://" + strings.Join(addrs, ",")
	said := func(text string) servers.Spoil {
		return func([]byte) ([]byte, bool) { return []byte(text), true }
	}
	(&servers.Garbling{
		At: all, Driver: openAt(t, OpenCluster, url), Direct: openCluster(t, c, ""), Wanted: true,
		Open: opens(OpenCluster, url),
		More: map[string]servers.Spoil{
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
