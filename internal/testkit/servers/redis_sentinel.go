package servers

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// RedisSentinelOptions are the options of a set of Sentinels and their servers.
// The zero value is a primary and a replica without passwords.
type RedisSentinelOptions struct {
	Redis RedisOptions // of the primary and the replica
	// SentinelPassword is the password of the Sentinels' default user.
	SentinelPassword string
	// DownAfter is the time, in milliseconds, after which a primary that does
	// not answer is replaced. 0 means 1000.
	DownAfter int
	// Hosts are three: of the first node and Sentinel, of the second ones, and
	// of the third Sentinel; nil: all on the test's machine.
	Hosts []*Host
}

// RedisSentinels is a set of three Sentinels, with the primary and the replica
// that they watch under the name [SentinelMaster].
type RedisSentinels struct {
	Nodes     []*RedisServer // the one that begins as the primary first
	Sentinels []*RedisServer
}

// SentinelMaster is the name under which Sentinels know their primary.
const SentinelMaster = "main"

// RedisSentinelsOf starts Sentinels for one test, and the servers that they
// watch.
func RedisSentinelsOf(t testing.TB, opts RedisSentinelOptions) *RedisSentinels {
	t.Helper()
	limitGroups(t)
	s := newRedisSentinels(t, opts, testFolder(t, "sentinels"))
	t.Cleanup(func() {
		s.stop()
		s.logOnFailure(t)
	})
	return s
}

func newRedisSentinels(t testing.TB, opts RedisSentinelOptions, dir string) *RedisSentinels {
	t.Helper()
	s := new(RedisSentinels)
	sub := func(name string) string {
		d := filepath.Join(dir, name)
		if err := os.Mkdir(d, 0o700); err != nil {
			t.Fatal(err)
		}
		return d
	}
	if opts.Redis.TLS && opts.Redis.Certs == nil {
		opts.Redis.Certs = NewCerts(t, dir)
	}
	for i := range 2 {
		o := opts.Redis
		o.Host = hostOf(opts.Hosts, i)
		o.Args = append([]string{"--repl-diskless-sync-delay", "0"}, o.Args...)
		if o.Password != "" {
			o.Args = append(o.Args, "--masterauth", o.Password)
		}
		if o.TLS {
			o.Args = append(o.Args, "--tls-replication", "yes")
		}
		if i > 0 {
			o.Args = append(o.Args, "--replicaof", s.Nodes[0].opts.Host.Addr(), strconv.Itoa(s.Nodes[0].Port))
		}
		s.Nodes = append(s.Nodes, newRedis(t, o, sub(fmt.Sprint("node", i))))
	}
	waitFor(t, "the replica is in step", func() bool {
		return s.Nodes[1].Info(t, "replication", "master_link_status") == "up"
	})

	// Each Sentinel is told of the others, which it would otherwise find out
	// only after seconds.
	down := opts.DownAfter
	if down == 0 {
		down = 1000
	}
	type one struct {
		port int
		id   string
	}
	all := make([]one, 3)
	for i := range all {
		var id [20]byte
		rand.Read(id[:])
		all[i] = one{FreePort(t), hex.EncodeToString(id[:])}
	}
	for i, me := range all {
		d := sub(fmt.Sprint("sentinel", i))
		var b strings.Builder
		fmt.Fprintf(&b, "sentinel myid %s\n", me.id)
		fmt.Fprintf(&b, "sentinel monitor %s %s %d 2\n", SentinelMaster, s.Nodes[0].opts.Host.Addr(), s.Nodes[0].Port)
		fmt.Fprintf(&b, "sentinel down-after-milliseconds %s %d\nsentinel failover-timeout %s 4000\n", SentinelMaster, down, SentinelMaster)
		if opts.Redis.Password != "" {
			fmt.Fprintf(&b, "sentinel auth-pass %s %s\n", SentinelMaster, opts.Redis.Password)
		}
		if opts.SentinelPassword != "" {
			fmt.Fprintf(&b, "sentinel sentinel-pass %s\n", opts.SentinelPassword)
		}
		fmt.Fprintf(&b, "sentinel known-replica %s %s %d\n", SentinelMaster, s.Nodes[1].opts.Host.Addr(), s.Nodes[1].Port)
		for j, other := range all {
			if other != me {
				fmt.Fprintf(&b, "sentinel known-sentinel %s %s %d %s\n", SentinelMaster, hostOf(opts.Hosts, j).Addr(), other.port, other.id)
			}
		}
		conf := filepath.Join(d, "sentinel.conf")
		if err := os.WriteFile(conf, []byte(b.String()), 0o600); err != nil {
			t.Fatal(err)
		}
		n := &RedisServer{
			Password: opts.SentinelPassword,
			Port:     me.port,
			path:     s.Nodes[0].path,
			dir:      d,
			opts: RedisOptions{
				Password: opts.SentinelPassword,
				TLS:      opts.Redis.TLS,
				Args:     []string{"--sentinel"},
				Env:      opts.Redis.Env,
				Host:     hostOf(opts.Hosts, i),
			},
			conf: conf,
		}
		if opts.Redis.TLS {
			n.Certs = s.Nodes[0].Certs
			n.opts.Args = append(n.opts.Args, "--tls-replication", "yes")
		}
		if err := n.boot(nil, false); err != nil {
			t.Fatal(err)
		}
		s.Sentinels = append(s.Sentinels, n)
	}
	waitFor(t, "the Sentinels agree", func() bool {
		for _, n := range s.Sentinels {
			if v, err := n.Try("SENTINEL", "CKQUORUM", SentinelMaster); err != nil || !strings.HasPrefix(fmt.Sprint(v), "OK 3") {
				return false
			}
		}
		return true
	})
	return s
}

// URL returns the address as redislock takes it, with these options in its
// query.
func (s *RedisSentinels) URL(query string) string {
	var hosts []string
	for _, n := range s.Sentinels {
		hosts = append(hosts, n.Addr())
	}
	return s.Nodes[0].urlOf("redis-sentinel", strings.Join(hosts, ","), "/"+SentinelMaster, query)
}

// Primary returns the node that a Sentinel now regards as the primary.
func (s *RedisSentinels) Primary(t testing.TB) *RedisServer {
	t.Helper()
	for _, n := range s.Sentinels {
		if n.ended() {
			continue
		}
		addr, _ := n.Do(t, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", SentinelMaster).([]any)
		for _, node := range s.Nodes {
			if len(addr) == 2 && addr[1] == strconv.Itoa(node.Port) {
				return node
			}
		}
	}
	t.Fatal("there is no primary")
	return nil
}

// Relief returns the primary, and the node that replaces it if it fails.
func (s *RedisSentinels) Relief(t testing.TB) (primary, next *RedisServer) {
	t.Helper()
	primary, next = s.Primary(t), s.Nodes[0]
	if next == primary {
		next = s.Nodes[1]
	}
	return primary, next
}

// AwaitPrimary waits until all Sentinels regard a node as the primary, and it
// is one.
func (s *RedisSentinels) AwaitPrimary(t testing.TB, node *RedisServer) {
	t.Helper()
	waitFor(t, "the replica is promoted", func() bool {
		for _, n := range s.Sentinels {
			v, err := n.Try("SENTINEL", "GET-MASTER-ADDR-BY-NAME", SentinelMaster)
			addr, _ := v.([]any)
			if err != nil || len(addr) != 2 || addr[1] != strconv.Itoa(node.Port) {
				return false
			}
		}
		v, err := node.Try("INFO", "replication")
		info, _ := v.(string)
		return err == nil && field(info, "role") == "master"
	})
}

func (s *RedisSentinels) stop() {
	for _, n := range s.Sentinels {
		n.stop()
	}
	for _, n := range s.Nodes {
		n.stop()
	}
}

func (s *RedisSentinels) logOnFailure(t testing.TB) {
	for _, n := range append(s.Sentinels, s.Nodes...) {
		n.logOnFailure(t)
	}
}
