package servers

import (
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// RedisClusterOptions are the options of a cluster. The zero value is a cluster
// of three primaries with a replica each.
type RedisClusterOptions struct {
	Redis RedisOptions // of every node
	// NodeTimeout is the time after which a node that does not answer is
	// replaced. The zero value means a second, which tests of failover need;
	// other tests should take more, because a busy machine is slow at times.
	NodeTimeout time.Duration
	NoReplicas  bool
	// Older is the number of nodes, the last ones, that look older than Redis 7
	// to clients of the URL: without messages of a slot. It is for servers
	// without TLS, and not for tests that ask for a slot's primary.
	Older int
	// Hosts are the hosts of the nodes; nil: all on the test's machine.
	Hosts []*Host
}

// RedisCluster is a running cluster. Its first three nodes begin as primaries,
// for a third of the slots each; the other three are their replicas, in the
// same order.
type RedisCluster struct {
	Nodes   []*RedisServer
	ids     []string
	proxies map[*RedisServer]*Garbler // the addresses of older nodes, for clients
}

const (
	clusterPrimaries = 3
	clusterSlots     = 16384
)

// RedisClusterOf starts a cluster for one test. It ends with the test.
func RedisClusterOf(t testing.TB, opts RedisClusterOptions) *RedisCluster {
	t.Helper()
	limitGroups(t)
	c := newRedisCluster(t, opts, testFolder(t, "cluster"))
	t.Cleanup(func() {
		c.stop()
		c.logOnFailure(t)
	})
	return c
}

// SharedRedisCluster returns the one cluster that the tests of the package
// share. It has primaries alone, and no test may break it. The package's
// TestMain has to be [Main].
func SharedRedisCluster(t testing.TB) *RedisCluster {
	t.Helper()
	c := share(t, "redis-cluster", func(dir string) *RedisCluster {
		return newRedisCluster(t, RedisClusterOptions{NodeTimeout: time.Minute, NoReplicas: true}, dir)
	})
	t.Cleanup(func() { c.logOnFailure(t) })
	return c
}

func newRedisCluster(t testing.TB, opts RedisClusterOptions, dir string) *RedisCluster {
	t.Helper()
	timeout := opts.NodeTimeout
	if timeout == 0 {
		timeout = time.Second
	}
	n := 2 * clusterPrimaries
	if opts.NoReplicas {
		n = clusterPrimaries
	}
	c := new(RedisCluster)
	if opts.Redis.TLS && opts.Redis.Certs == nil {
		opts.Redis.Certs = NewCerts(t, dir)
	}
	old := beforeRedis7(t)
	for i := range n {
		o := opts.Redis
		o.Host = hostOf(opts.Hosts, i)
		// Replicas are in sync at once, and keep their roles.
		o.Args = append([]string{
			"--cluster-enabled", "yes", "--cluster-node-timeout", fmt.Sprint(timeout.Milliseconds()),
			"--cluster-allow-replica-migration", "no",
			"--repl-diskless-sync-delay", "0", "--cluster-replica-validity-factor", "0",
		}, o.Args...)
		if !old { // older servers' own port is 10000 above the clients' port
			o.Args = append(o.Args, "--cluster-port", fmt.Sprint(FreePort(t)))
		}
		if o.TLS {
			o.Args = append(o.Args, "--tls-cluster", "yes", "--tls-replication", "yes")
		}
		if o.Password != "" {
			o.Args = append(o.Args, "--masterauth", o.Password)
		}
		sub := filepath.Join(dir, fmt.Sprint("node", i))
		if err := os.Mkdir(sub, 0o700); err != nil {
			t.Fatal(err)
		}
		s := newRedis(t, o, sub)
		c.Nodes = append(c.Nodes, s)
		c.ids = append(c.ids, s.Do(t, "CLUSTER", "MYID").(string))
	}
	if !old {
		c.pretendOlder(t, opts.Older)
	}
	for i, s := range c.Nodes { // refused once a node knows another
		s.Do(t, "CLUSTER", "SET-CONFIG-EPOCH", strconv.Itoa(i+1))
	}
	for i, s := range c.Nodes {
		if i < clusterPrimaries {
			from, to := clusterSlots*i/clusterPrimaries, clusterSlots*(i+1)/clusterPrimaries-1
			add := []string{"CLUSTER", "ADDSLOTS"}
			for slot := from; slot <= to; slot++ {
				add = append(add, strconv.Itoa(slot))
			}
			s.Do(t, add...)
		}
		for j, other := range c.Nodes { // every node meets every other: gossip takes longer
			if i != j {
				port := strconv.Itoa(other.Port + 10_000)
				if !old {
					port = other.argument("--cluster-port")
				}
				s.Do(t, "CLUSTER", "MEET", other.opts.Host.Addr(), strconv.Itoa(other.Port), port)
			}
		}
	}
	waitFor(t, "the nodes know each other", func() bool {
		for _, s := range c.Nodes {
			if info, _ := s.Do(t, "CLUSTER", "INFO").(string); field(info, "cluster_known_nodes") != strconv.Itoa(n) {
				return false
			}
			if nodes, _ := s.Do(t, "CLUSTER", "NODES").(string); strings.Contains(nodes, "handshake") {
				return false
			}
		}
		return true
	})
	for i := clusterPrimaries; i < n; i++ {
		s, id := c.Nodes[i], c.ids[i-clusterPrimaries]
		waitFor(t, "a replica is given its primary", func() bool {
			_, err := s.Try("CLUSTER", "REPLICATE", id)
			return err == nil
		})
	}
	c.Settle(t)
	c.awaitProxies(t)
	return c
}

// beforeRedis7 reports whether the installed server is Redis 6.
func beforeRedis7(t testing.TB) bool {
	t.Helper()
	version, err := exec.Command(findRedis(t), "--version").Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.Contains(string(version), "v=6.")
}

// argument returns the value of an option on the server's command line.
func (s *RedisServer) argument(name string) string {
	for i, a := range s.opts.Args {
		if a == name {
			return s.opts.Args[i+1]
		}
	}
	return ""
}

// Settle waits until all running nodes agree that the cluster works, and
// replicas are in sync.
func (c *RedisCluster) Settle(t testing.TB) {
	t.Helper()
	waitFor(t, "the cluster is up", func() bool {
		for _, s := range c.Nodes {
			if s.ended() {
				continue
			}
			v, err := s.Try("CLUSTER", "INFO")
			info, _ := v.(string)
			if err != nil || field(info, "cluster_state") != "ok" || field(info, "cluster_slots_ok") != strconv.Itoa(clusterSlots) {
				return false
			}
			v, err = s.Try("INFO", "replication")
			info, _ = v.(string)
			if err != nil || field(info, "role") == "slave" && field(info, "master_link_status") != "up" {
				return false
			}
		}
		return true
	})
}

// URL returns the cluster's address as redislock takes it, with these options
// in its query.
func (c *RedisCluster) URL(query string) string {
	return c.Nodes[0].urlOf("redis-cluster", strings.Join(c.Addrs(), ","), "", query)
}

// Addrs returns host and port of every node, as clients see them.
func (c *RedisCluster) Addrs() []string {
	var addrs []string
	for _, s := range c.Nodes {
		if g := c.proxies[s]; g != nil {
			addrs = append(addrs, g.Addr())
		} else {
			addrs = append(addrs, s.Addr())
		}
	}
	return addrs
}

// Primary returns the node that now has a slot.
func (c *RedisCluster) Primary(t testing.TB, slot int) *RedisServer {
	t.Helper()
	for _, s := range c.Nodes {
		if s.ended() {
			continue
		}
		list, _ := s.Do(t, "CLUSTER", "SLOTS").([]any)
		for _, v := range list {
			r := v.([]any)
			if int64(slot) < r[0].(int64) || int64(slot) > r[1].(int64) {
				continue
			}
			port := r[2].([]any)[1].(int64)
			for _, node := range c.Nodes {
				if int64(node.Port) == port {
					return node
				}
			}
		}
	}
	t.Fatalf("nobody has slot %d", slot)
	return nil
}

// Replica returns the replica of a node that is, or was, the primary of a
// third of the slots, or the other way round.
func (c *RedisCluster) Replica(s *RedisServer) *RedisServer {
	for i, node := range c.Nodes {
		if node == s {
			return c.Nodes[(i+clusterPrimaries)%len(c.Nodes)]
		}
	}
	return nil
}

// AwaitPrimary waits until all running nodes regard a node as a primary, and
// that node serves.
func (c *RedisCluster) AwaitPrimary(t testing.TB, s *RedisServer) {
	t.Helper()
	waitFor(t, "the replica is promoted", func() bool {
		for _, other := range c.Nodes {
			if other.ended() {
				continue
			}
			v, err := other.Try("CLUSTER", "NODES")
			nodes, _ := v.(string)
			_, line, _ := strings.Cut(nodes, c.id(s)+" ")
			line, _, _ = strings.Cut(line, "\n")
			if err != nil || !strings.Contains(line, "master") || strings.Contains(line, "fail") {
				return false
			}
		}
		v, err := s.Try("CLUSTER", "INFO")
		info, _ := v.(string)
		return err == nil && field(info, "cluster_state") == "ok"
	})
}

// BeginMove starts to migrate a slot from its primary to another one.
// FinishMove moves the keys and ends the migration. In between, requests about
// the slot are redirected or deferred.
func (c *RedisCluster) BeginMove(t testing.TB, slot int, to *RedisServer) {
	t.Helper()
	from, n := c.Primary(t, slot), strconv.Itoa(slot)
	to.Do(t, "CLUSTER", "SETSLOT", n, "IMPORTING", c.id(from))
	from.Do(t, "CLUSTER", "SETSLOT", n, "MIGRATING", c.id(to))
}

// MoveKeys moves up to most keys of a slot that BeginMove began to move.
func (c *RedisCluster) MoveKeys(t testing.TB, slot, most int, to *RedisServer) {
	t.Helper()
	from := c.Primary(t, slot)
	keys, _ := from.Do(t, "CLUSTER", "GETKEYSINSLOT", strconv.Itoa(slot), strconv.Itoa(most)).([]any)
	for _, key := range keys {
		waitFor(t, "a key is moved", func() bool { // on a busy machine, nodes count as down for moments
			_, err := from.Try("MIGRATE", to.opts.Host.Addr(), strconv.Itoa(to.Port), key.(string), "0", "5000", "REPLACE")
			return err == nil
		})
	}
}

// FinishMove ends the migration that BeginMove began.
func (c *RedisCluster) FinishMove(t testing.TB, slot int, to *RedisServer) {
	t.Helper()
	from, n := c.Primary(t, slot), strconv.Itoa(slot)
	// A replica that was promoted meanwhile does not know of the migration.
	from.Do(t, "CLUSTER", "SETSLOT", n, "MIGRATING", c.id(to))
	c.MoveKeys(t, slot, 10000, to)
	to.Do(t, "CLUSTER", "SETSLOT", n, "NODE", c.id(to))
	from.Do(t, "CLUSTER", "SETSLOT", n, "NODE", c.id(to))
	for _, s := range c.Nodes {
		if s != to && s != from && !s.ended() {
			_, _ = s.Try("CLUSTER", "SETSLOT", n, "NODE", c.id(to)) // replicas learn of it by gossip
		}
	}
}

func (c *RedisCluster) id(s *RedisServer) string {
	for i, node := range c.Nodes {
		if node == s {
			return c.ids[i]
		}
	}
	return ""
}

func (c *RedisCluster) stop() {
	for _, s := range c.Nodes {
		s.stop()
	}
}

func (c *RedisCluster) logOnFailure(t testing.TB) {
	for _, s := range c.Nodes {
		s.logOnFailure(t)
	}
}

// ended reports whether the process is not running.
func (p *Process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// urlOf returns a URL for several servers like this one.
func (s *RedisServer) urlOf(scheme, hosts, path, query string) string {
	if s.opts.TLS {
		scheme = strings.Replace(scheme, "redis", "rediss", 1)
	}
	user := ""
	if s.Password != "" {
		user = url.UserPassword("", s.Password).String() + "@"
	}
	if query != "" {
		query = "?" + query
	}
	return scheme + "://" + user + hosts + path + query
}

// field returns a field of an answer in the form of INFO.
func field(info, name string) string {
	for line := range strings.Lines(info) {
		if v, ok := strings.CutPrefix(strings.TrimSpace(line), name+":"); ok {
			return v
		}
	}
	return ""
}

// waitFor calls ok until it returns true.
func waitFor(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(startLimit); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatalf("never: %s", what)
}
