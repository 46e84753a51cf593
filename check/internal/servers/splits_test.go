package servers

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/check/torture"
	"github.com/holdfast-go/holdfast/internal/backends"
)

// splits are safe scenarios in which the members of an ensemble, each on a host
// of its own, are cut off from each other. Clients reach all of them meanwhile,
// on both sides, but for one that a fault of its own takes along.
var splits = []scenario{
	{name: "etcd of three", seed: 51, ttl: 5 * time.Second, start: func(t *testing.T, rnd *dice) scene {
		return etcdApart(t, rnd, backends.EtcdNewest)
	}},
	{name: "old etcd of three", seed: 52, ttl: 5 * time.Second, start: func(t *testing.T, rnd *dice) scene {
		return etcdApart(t, rnd, backends.EtcdOld)
	}},
	{name: "zookeeper of three", seed: 53, ttl: 5 * time.Second, start: func(t *testing.T, rnd *dice) scene {
		n := backends.NewNetwork(t)
		hosts := hostsOn(t, n, 3)
		// A leader that hears nobody gives up after so many ticks of half a second.
		s := backends.ZooKeeper(t, backends.ZooKeeperOptions{Members: 3, Hosts: hosts, Config: []string{"syncLimit=4"}})
		return scene{url: s.URL("", "")}.split(t, rnd, n, hosts, func(i int) bool { return s.Members[i].Leads(t) },
			func(i int) bool { return strings.Contains(s.Members[i].Ask(t, "srvr"), "Mode:") })
	}},
}

func etcdApart(t *testing.T, rnd *dice, v backends.EtcdVersion) scene {
	n := backends.NewNetwork(t)
	hosts := hostsOn(t, n, 3)
	s := backends.Etcd(t, backends.EtcdOptions{Version: v, Members: 3, Hosts: hosts})
	within := func(ask func(*backends.EtcdMember, context.Context) bool) func(int) bool {
		return func(i int) bool {
			ctx, stop := context.WithTimeout(t.Context(), time.Second)
			defer stop()
			return ask(s.Members[i], ctx)
		}
	}
	return scene{url: s.URL("")}.split(t, rnd, n, hosts, within((*backends.EtcdMember).Leads), within((*backends.EtcdMember).Serves))
}

// replaced is the name under which it is counted how often another member led
// than the one that was cut off. Who is cut off may lead on, and not know.
const replaced = "leader replaced"

// split puts each client on a host of its own, and cuts the members of an
// ensemble off from each other in all the ways that it has to survive. A split is
// over when all serve again, which takes an etcd up to half a minute: its members
// wait for connections that they do not know to be dead.
func (s scene) split(t *testing.T, rnd *dice, n *backends.Network, members []*backends.Host, leads, serves func(member int) bool) scene {
	type hosts = []*backends.Host
	s.on = clientsOn(t, n)
	var others atomic.Int64
	s.counts = map[string]*atomic.Int64{replaced: &others}
	without := func(all hosts, i int) hosts { return slices.Delete(slices.Clone(all), i, i+1) }
	// fault cuts a member off, the leader or one that is not.
	fault := func(kind string, weight int, leader bool, cut func(one, rest hosts) (func() error, error)) torture.Fault {
		return torture.Fault{Kind: kind, Weight: weight, Begin: func(int) (func() error, error) {
			led := slices.IndexFunc(members, func(h *backends.Host) bool { return leads(slices.Index(members, h)) })
			i := max(led, 0)
			if !leader {
				i = (i + 1 + rnd.roll(len(members)-1)) % len(members)
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
				return must("all members serve", func() bool {
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
			i := rnd.roll(clients)
			return n.Split(append(hosts{s.on[i]}, one...), append(without(s.on, i), rest...))
		}),
		fault("follower isolated", 15, false, n.Split),
		fault("leader unheard", 10, true, n.Cut),
		fault("leader deaf", 10, true, func(one, rest hosts) (func() error, error) { return n.Cut(rest, one) }),
		fault("all isolated", 15, true, func(_, _ hosts) (func() error, error) { return n.Cut(members, members) }))
	return s
}

// islands are exposed: the replica takes over from a primary that is cut off from
// it, and lives (F29). Clients reach both, but for one that goes on with the old
// one alone.
var islands = []scenario{
	{name: "sentinel", seed: 61, ttl: 3 * time.Second, exposed: overlaps, bites: true, long: often, start: func(t *testing.T, rnd *dice) scene {
		return sentinelApart(t, rnd, "")
	}},
	{name: "sentinel that confirms", seed: 62, ttl: 3 * time.Second, exposed: overlaps, long: often, start: func(t *testing.T, rnd *dice) scene {
		return sentinelApart(t, rnd, "min_replicas=1")
	}},
	// A primary that has lost its replica refuses to write, renewals too.
	{name: "sentinel that confirms and refuses alone", seed: 63, ttl: 3 * time.Second, exposed: overlaps, long: often, start: func(t *testing.T, rnd *dice) scene {
		return sentinelApart(t, rnd, "min_replicas=1", "--min-replicas-to-write", "1", "--min-replicas-max-lag", "1")
	}},
	{name: "cluster", seed: 64, ttl: 3 * time.Second, exposed: overlaps, long: often, start: func(t *testing.T, rnd *dice) scene {
		return clusterApart(t, rnd, "")
	}},
	{name: "cluster that confirms", seed: 65, ttl: 3 * time.Second, exposed: overlaps, long: often, start: func(t *testing.T, rnd *dice) scene {
		return clusterApart(t, rnd, "min_replicas=1")
	}},
}

func sentinelApart(t *testing.T, rnd *dice, query string, args ...string) scene {
	n := backends.NewNetwork(t)
	hosts := hostsOn(t, n, 3)
	s := backends.RedisSentinelsOf(t, backends.RedisSentinelOptions{Hosts: hosts, Redis: backends.RedisOptions{Args: args}})
	return scene{url: s.URL(query)}.island(t, rnd, n, hosts, func() (old, next *backends.RedisServer) { return s.Relief(t) }, func() {
		for _, node := range s.Nodes { // the Sentinel that was cut off hears of it last
			if node.Info(t, "replication", "role") == "master" {
				s.AwaitPrimary(t, node)
			}
		}
	})
}

func clusterApart(t *testing.T, rnd *dice, query string) scene {
	n := backends.NewNetwork(t)
	hosts := hostsOn(t, n, 6)
	c := backends.RedisClusterOf(t, backends.RedisClusterOptions{Hosts: hosts})
	return scene{url: c.URL(query)}.island(t, rnd, n, hosts, func() (old, next *backends.RedisServer) {
		old = c.Primary(t, rnd.roll(slots))
		return old, c.Replica(old)
	}, func() { c.Settle(t) })
}

// island cuts a primary off from the other servers until its replica has taken
// over, and longer, alone or together with a client.
func (s scene) island(t *testing.T, rnd *dice, n *backends.Network, hosts []*backends.Host,
	primary func() (old, next *backends.RedisServer), settle func(),
) scene {
	s.on = clientsOn(t, n)
	cut := func(with bool) func(old *backends.RedisServer) (func() error, error) {
		return func(old *backends.RedisServer) (func() error, error) {
			i := slices.Index(hosts, old.Host())
			one, rest := hosts[i:i+1:i+1], slices.Delete(slices.Clone(hosts), i, i+1)
			if with {
				c := rnd.roll(clients)
				one, rest = append(one, s.on[c]), append(rest, slices.Delete(slices.Clone(s.on), c, c+1)...)
			}
			return n.Split(one, rest)
		}
	}
	s.own = append(s.own,
		relieved("primary isolated", primary, cut(false), settle),
		relieved("primary isolated with a client", primary, cut(true), settle))
	return s
}
