package servers

import (
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/check/torture"
	"github.com/holdfast-go/holdfast/drivertest/cuts"
	"github.com/holdfast-go/holdfast/internal/backends"
)

// networks are safe scenarios in which each client is in a network of its own,
// whose only wire is cut: the kernel drops what is sent, without a word.
var networks = []scenario{
	{name: "redis in networks that split", seed: 41, start: func(t *testing.T, _ *dice) scene {
		s := backends.Redis(t, backends.RedisOptions{Durable: true})
		return scene{url: s.URL("")}.apart(t, s.Addr())
	}},
	{name: "etcd in networks that split", seed: 42, start: func(t *testing.T, _ *dice) scene {
		s := backends.Etcd(t, backends.EtcdOptions{})
		return scene{url: s.URL("")}.apart(t, s.Members[0].Addr())
	}},
	{name: "zookeeper in networks that split", seed: 43, start: func(t *testing.T, _ *dice) scene {
		s := backends.ZooKeeper(t, backends.ZooKeeperOptions{})
		return scene{url: s.URL("", "")}.apart(t, s.Members[0].Addr())
	}},
	{name: "postgres in networks that split", seed: 44, start: func(t *testing.T, rnd *dice) scene {
		s := backends.Postgres(t, backends.PostgresOptions{})
		addr := strings.Split(strings.Split(s.URL("postgres", ""), "@")[1], "/")[0]
		return scene{url: s.URL("postgres", "")}.apart(t, addr)
	}},
}

// apart puts each client on a host of its own, whose way to the store's only
// server, at addr, is cut.
func (s scene) apart(t *testing.T, addr string) scene {
	t.Helper()
	n := backends.NewNetwork(t)
	p := cuts.At(t, n.Self().Addr()+":0", addr)
	url, hosts := strings.Replace(s.url, addr, p.Addr(), 1), clientsOn(t, n)
	s.of = func(int) string { return url }
	s.on = hosts
	s.own = append(s.own, torture.Fault{Kind: "network split", Weight: 60, Client: true, Begin: func(client int) (func() error, error) {
		return n.Split(hosts[client:client+1], []*backends.Host{n.Self()})
	}})
	return s
}

// hostsOn adds hosts to a network.
func hostsOn(t *testing.T, n *backends.Network, many int) (hosts []*backends.Host) {
	for range many {
		hosts = append(hosts, n.Host(t))
	}
	return hosts
}

// clientsOn adds a host for each client.
func clientsOn(t *testing.T, n *backends.Network) []*backends.Host { return hostsOn(t, n, clients) }
