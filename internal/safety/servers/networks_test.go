package servers

import (
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/safety/torture"
	"github.com/holdfast-go/holdfast/internal/testkit/faultproxy"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
)

// networks are safe scenarios in which each client is in a network of its own,
// whose only wire is cut: the kernel drops the packets silently.
var networks = []scenario{
	{name: "redis in networks that split", seed: 41, start: func(t *testing.T, _ *faultSource) deployment {
		s := servers.Redis(t, servers.RedisOptions{Durable: true})
		return deployment{url: s.URL("")}.cutClientsOff(t, s.Addr())
	}},
	{name: "etcd in networks that split", seed: 42, start: func(t *testing.T, _ *faultSource) deployment {
		s := servers.Etcd(t, servers.EtcdOptions{})
		return deployment{url: s.URL("")}.cutClientsOff(t, s.Members[0].Addr())
	}},
	{name: "zookeeper in networks that split", seed: 43, start: func(t *testing.T, _ *faultSource) deployment {
		s := servers.ZooKeeper(t, servers.ZooKeeperOptions{})
		return deployment{url: s.URL("", "")}.cutClientsOff(t, s.Members[0].Addr())
	}},
	{name: "postgres in networks that split", seed: 44, start: func(t *testing.T, rnd *faultSource) deployment {
		s := servers.Postgres(t, servers.PostgresOptions{})
		addr := strings.Split(strings.Split(s.URL("postgres", ""), "@")[1], "/")[0]
		return deployment{url: s.URL("postgres", "")}.cutClientsOff(t, addr)
	}},
}

// cutClientsOff puts each client on a host of its own, and adds faults that cut
// its way to the store's only server, at addr.
func (s deployment) cutClientsOff(t *testing.T, addr string) deployment {
	t.Helper()
	n := servers.NewNetwork(t)
	p := faultproxy.At(t, n.Self().Addr()+":0", addr)
	url, hosts := strings.Replace(s.url, addr, p.Addr(), 1), clientsOn(t, n)
	s.of = func(int) string { return url }
	s.on = hosts
	s.own = append(s.own, torture.Fault{Kind: "network split", Weight: 60, Client: true, Begin: func(client int) (func() error, error) {
		return n.Split(hosts[client:client+1], []*servers.Host{n.Self()})
	}})
	return s
}

// hostsOn adds hosts to a network.
func hostsOn(t *testing.T, n *servers.Network, many int) (hosts []*servers.Host) {
	for range many {
		hosts = append(hosts, n.Host(t))
	}
	return hosts
}

// clientsOn adds a host for each client.
func clientsOn(t *testing.T, n *servers.Network) []*servers.Host { return hostsOn(t, n, clients) }
