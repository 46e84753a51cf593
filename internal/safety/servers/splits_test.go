package servers

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/safety/torture"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
)

// splits are safe scenarios in which the members of an ensemble, each on a host
// of its own, are cut off from each other. Clients reach all members meanwhile,
// on both sides, except a client that a fault of its own cuts off together with
// a member.
var splits = []scenario{
	{name: "etcd of three", seed: 51, ttl: 5 * time.Second, start: func(t *testing.T, rnd *faultSource) deployment {
		return etcdApart(t, rnd, servers.EtcdNewest)
	}},
	{name: "old etcd of three", seed: 52, ttl: 5 * time.Second, start: func(t *testing.T, rnd *faultSource) deployment {
		return etcdApart(t, rnd, servers.EtcdOld)
	}},
	{name: "zookeeper of three", seed: 53, ttl: 5 * time.Second, start: func(t *testing.T, rnd *faultSource) deployment {
		n := servers.NewNetwork(t)
		hosts := hostsOn(t, n, 3)
		// A leader that hears from no follower gives up after this many ticks
		// of half a second.
		s := servers.ZooKeeper(t, servers.ZooKeeperOptions{Members: 3, Hosts: hosts, Config: []string{"syncLimit=4"}})
		return deployment{url: s.URL("", "")}.split(t, rnd, n, hosts, func(i int) bool { return s.Members[i].Leads(t) },
			func(i int) bool { return strings.Contains(s.Members[i].Ask(t, "srvr"), "Mode:") })
	}},
}

func etcdApart(t *testing.T, rnd *faultSource, v servers.EtcdVersion) deployment {
	n := servers.NewNetwork(t)
	hosts := hostsOn(t, n, 3)
	s := servers.Etcd(t, servers.EtcdOptions{Version: v, Members: 3, Hosts: hosts})
	within := func(ask func(*servers.EtcdMember, context.Context) bool) func(int) bool {
		return func(i int) bool {
			ctx, stop := context.WithTimeout(t.Context(), time.Second)
			defer stop()
			return ask(s.Members[i], ctx)
		}
	}
	return deployment{url: s.URL("")}.split(t, rnd, n, hosts, within((*servers.EtcdMember).Leads), within((*servers.EtcdMember).Serves))
}

// replaced is the name of the count of new leaders while the former one was cut
// off. The member that is cut off may go on leading without knowing.
const replaced = "leader replaced"

// split puts each client on a host of its own, and cuts the members of an
// ensemble off from each other in all the ways that it must survive. A split is
// over when all members serve again, which takes an etcd up to half a minute:
// its members wait for connections that are dead without their knowledge.
func (s deployment) split(t *testing.T, rnd *faultSource, n *servers.Network, members []*servers.Host, leads, serves func(member int) bool) deployment {
	type hosts = []*servers.Host
	s.on = clientsOn(t, n)
	var others atomic.Int64
	s.counts = map[string]*atomic.Int64{replaced: &others}
	without := func(all hosts, i int) hosts { return slices.Delete(slices.Clone(all), i, i+1) }
	// fault cuts off one member, the leader or another.
	fault := func(kind string, weight int, leader bool, cut func(one, rest hosts) (func() error, error)) torture.Fault {
		return torture.Fault{Kind: kind, Weight: weight, Begin: func(int) (func() error, error) {
			led := slices.IndexFunc(members, func(h *servers.Host) bool { return leads(slices.Index(members, h)) })
			i := max(led, 0)
			if !leader {
				i = (i + 1 + rnd.intN(len(members)-1)) % len(members)
			}
			heal, err := cut(members[i:i+1], without(members, i))
			if err != nil {
				return nil, err
			}
			return func() error {
				for j := range members {
					if led >= 0 && j != led && leads(j) {
						others.Add(1)
						break
					}
				}
				if err := heal(); err != nil {
					return err
				}
				return awaitCondition("all members serve", func() bool {
					for j := range members {
						if !serves(j) {
							return false
						}
					}
					return true
				})
			}, nil
		}}
	}
	s.own = append(s.own,
		fault("leader isolated", 30, true, n.Split),
		fault("leader isolated with a client", 20, true, func(one, rest hosts) (func() error, error) {
			i := rnd.intN(clients)
			return n.Split(append(hosts{s.on[i]}, one...), append(without(s.on, i), rest...))
		}),
		fault("follower isolated", 15, false, n.Split),
		fault("leader without outgoing traffic", 10, true, n.Cut),
		fault("leader without incoming traffic", 10, true, func(one, rest hosts) (func() error, error) { return n.Cut(rest, one) }),
		fault("all isolated", 15, true, func(_, _ hosts) (func() error, error) { return n.Cut(members, members) }))
	return s
}

// islands are exposed scenarios: the replica takes over from a primary that is
// cut off from it and still runs (F29). Clients reach both, except one that
// goes on with the old primary alone.
var islands = []scenario{
	{name: "sentinel", seed: 61, ttl: 3 * time.Second, exposed: overlaps, bites: true, long: often, start: func(t *testing.T, rnd *faultSource) deployment {
		return sentinelApart(t, rnd, "")
	}},
	{name: "sentinel that confirms", seed: 62, ttl: 3 * time.Second, exposed: overlaps, long: often, start: func(t *testing.T, rnd *faultSource) deployment {
		return sentinelApart(t, rnd, "min_replicas=1")
	}},
	// A primary that has lost its replica refuses all writes, renewals
	// included.
	{name: "sentinel that confirms and refuses alone", seed: 63, ttl: 3 * time.Second, exposed: overlaps, long: often, start: func(t *testing.T, rnd *faultSource) deployment {
		return sentinelApart(t, rnd, "min_replicas=1", "--min-replicas-to-write", "1", "--min-replicas-max-lag", "1")
	}},
	{name: "cluster", seed: 64, ttl: 3 * time.Second, exposed: overlaps, long: often, start: func(t *testing.T, rnd *faultSource) deployment {
		return clusterApart(t, rnd, "")
	}},
	{name: "cluster that confirms", seed: 65, ttl: 3 * time.Second, exposed: overlaps, long: often, start: func(t *testing.T, rnd *faultSource) deployment {
		return clusterApart(t, rnd, "min_replicas=1")
	}},
}

func sentinelApart(t *testing.T, rnd *faultSource, query string, args ...string) deployment {
	n := servers.NewNetwork(t)
	hosts := hostsOn(t, n, 3)
	s := servers.RedisSentinelsOf(t, servers.RedisSentinelOptions{Hosts: hosts, Redis: servers.RedisOptions{Args: args}})
	return deployment{url: s.URL(query)}.isolatePrimary(t, rnd, n, hosts, func() (old, next *servers.RedisServer) { return s.Relief(t) }, func() {
		for _, node := range s.Nodes { // the Sentinel that was cut off learns of it last
			if node.Info(t, "replication", "role") == "master" {
				s.AwaitPrimary(t, node)
			}
		}
	})
}

func clusterApart(t *testing.T, rnd *faultSource, query string) deployment {
	n := servers.NewNetwork(t)
	hosts := hostsOn(t, n, 6)
	c := servers.RedisClusterOf(t, servers.RedisClusterOptions{Hosts: hosts})
	return deployment{url: c.URL(query)}.isolatePrimary(t, rnd, n, hosts, func() (old, next *servers.RedisServer) {
		old = c.Primary(t, rnd.intN(slots))
		return old, c.Replica(old)
	}, func() { c.Settle(t) })
}

// isolatePrimary cuts a primary off from the other servers until its replica
// has taken over, and longer, alone or together with a client.
func (s deployment) isolatePrimary(t *testing.T, rnd *faultSource, n *servers.Network, hosts []*servers.Host,
	primary func() (old, next *servers.RedisServer), settle func(),
) deployment {
	s.on = clientsOn(t, n)
	cut := func(with bool) func(old *servers.RedisServer) (func() error, error) {
		return func(old *servers.RedisServer) (func() error, error) {
			i := slices.Index(hosts, old.Host())
			one, rest := hosts[i:i+1:i+1], slices.Delete(slices.Clone(hosts), i, i+1)
			if with {
				c := rnd.intN(clients)
				one, rest = append(one, s.on[c]), append(rest, slices.Delete(slices.Clone(s.on), c, c+1)...)
			}
			return n.Split(one, rest)
		}
	}
	s.own = append(s.own,
		awaitFailover("primary isolated", primary, cut(false), settle),
		awaitFailover("primary isolated with a client", primary, cut(true), settle))
	return s
}
