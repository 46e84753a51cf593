package servers

import (
	"fmt"
	"os"
	"os/exec"
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
		return scene{url: s.URL("")}.apart(t, 1, s.Addr())
	}},
	{name: "etcd in networks that split", seed: 42, start: func(t *testing.T, _ *dice) scene {
		s := backends.Etcd(t, backends.EtcdOptions{})
		return scene{url: s.URL("")}.apart(t, 2, s.Members[0].Addr())
	}},
	{name: "zookeeper in networks that split", seed: 43, start: func(t *testing.T, _ *dice) scene {
		s := backends.ZooKeeper(t, backends.ZooKeeperOptions{})
		return scene{url: s.URL("", "")}.apart(t, 3, s.Members[0].Addr())
	}},
	{name: "postgres in networks that split", seed: 44, start: func(t *testing.T, rnd *dice) scene {
		s := backends.Postgres(t, backends.PostgresOptions{})
		addr := strings.Split(strings.Split(s.URL("postgres", ""), "@")[1], "/")[0]
		return scene{url: s.URL("postgres", "")}.apart(t, 4, addr)
	}},
}

// apart puts each client into a network namespace, from which a pair of virtual
// interfaces leads to the store's only server, at addr; group tells the networks
// of scenarios apart that run side by side. A split takes the pair down.
func (s scene) apart(t *testing.T, group int, addr string) scene {
	t.Helper()
	if os.Geteuid() != 0 {
		backends.Lack(t, "networks are for root alone")
	}
	program := backends.Find(t, "HOLDFAST_IP", "iproute2", "ip")
	ip := func(args ...string) error {
		out, err := exec.Command(program, args...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("ip %s: %w: %s", strings.Join(args, " "), err, out)
		}
		return nil
	}
	var spaces, urls []string
	for client := range clients {
		id := fmt.Sprintf("hf%d-%d%d", os.Getpid()%100000, group, client) // an interface's name has room for 15 letters
		inner := id + "c"
		net := fmt.Sprintf("10.213.%d.", 16*group+client)
		t.Cleanup(func() { _ = ip("netns", "del", id) }) // with it goes the pair
		for _, args := range [][]string{
			{"netns", "add", id},
			{"link", "add", id, "type", "veth", "peer", "name", inner, "netns", id},
			{"addr", "add", net + "1/30", "dev", id},
			{"link", "set", id, "up"},
			{"-n", id, "addr", "add", net + "2/30", "dev", inner},
			{"-n", id, "link", "set", inner, "up"},
			{"-n", id, "link", "set", "lo", "up"},
		} {
			if err := ip(args...); err != nil {
				t.Fatal(err)
			}
		}
		p := cuts.At(t, net+"1:0", addr)
		spaces, urls = append(spaces, id), append(urls, strings.Replace(s.url, addr, p.Addr(), 1))
	}
	s.of = func(client int) string { return urls[client] }
	s.in = func(client int) string { return spaces[client] }
	s.own = append(s.own, torture.Fault{Kind: "network split", Weight: 60, Client: true, Begin: func(client int) (func() error, error) {
		dev := spaces[client]
		return func() error { return ip("link", "set", dev, "up") }, ip("link", "set", dev, "down")
	}})
	return s
}
