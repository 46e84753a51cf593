package servers

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/check/torture"
	"github.com/holdfast-go/holdfast/internal/backends"
)

// dice decide which server of several is struck.
type dice struct {
	mu  sync.Mutex
	rnd *rand.Rand
}

func newDice(seed uint64) *dice { return &dice{rnd: rand.New(rand.NewPCG(seed, 2))} }

func (d *dice) roll(n int) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.rnd.IntN(n)
}

// node is a server that can be struck.
type node interface {
	Kill()
	Pause(t testing.TB)
	Resume(t testing.TB)
}

// strikes are the faults of servers that keep their data: one of them is killed
// and comes back, or is stopped for a while.
func strikes[N node](t *testing.T, rnd *dice, nodes []N, back func(N)) []torture.Fault {
	return []torture.Fault{
		{Kind: "server killed", Weight: 20, Begin: func(int) (func() error, error) {
			n := nodes[rnd.roll(len(nodes))]
			n.Kill()
			return func() error { back(n); return nil }, nil
		}},
		{Kind: "server stopped", Weight: 20, Begin: func(int) (func() error, error) {
			n := nodes[rnd.roll(len(nodes))]
			n.Pause(t)
			return func() error { n.Resume(t); return nil }, nil
		}},
	}
}

var safe = []scenario{
	{name: "sqlite", seed: 1, start: func(t *testing.T, _ *dice) (string, []torture.Fault) {
		return "sqlite:" + filepath.Join(t.TempDir(), "locks.db"), nil
	}},
	{name: "redis", seed: 2, start: func(t *testing.T, rnd *dice) (string, []torture.Fault) {
		s := backends.Redis(t, backends.RedisOptions{Durable: true})
		return s.URL(""), strikes(t, rnd, []*backends.RedisServer{s}, func(s *backends.RedisServer) { s.Restart(t) })
	}},
	{name: "redlock", seed: 3, start: func(t *testing.T, rnd *dice) (string, []torture.Fault) {
		var nodes []*backends.RedisServer
		var hosts []string
		for range 3 {
			s := backends.Redis(t, backends.RedisOptions{Durable: true})
			nodes, hosts = append(nodes, s), append(hosts, s.Addr())
		}
		return "redlock://" + strings.Join(hosts, ","), strikes(t, rnd, nodes, func(s *backends.RedisServer) { s.Restart(t) })
	}},
	{name: "etcd", seed: 4, start: func(t *testing.T, rnd *dice) (string, []torture.Fault) {
		s := backends.Etcd(t, backends.EtcdOptions{})
		return s.URL(""), strikes(t, rnd, s.Members, func(m *backends.EtcdMember) { m.Restart(t) })
	}},
	{name: "zookeeper", seed: 5, start: func(t *testing.T, rnd *dice) (string, []torture.Fault) {
		s := backends.ZooKeeper(t, backends.ZooKeeperOptions{})
		return s.URL("", ""), strikes(t, rnd, s.Members, func(m *backends.ZooKeeperMember) { m.Restart(t) })
	}},
	{name: "mariadb", seed: 6, start: func(t *testing.T, rnd *dice) (string, []torture.Fault) {
		s := backends.MariaDB(t, backends.MariaDBOptions{})
		return s.URL("holdfast", ""), strikes(t, rnd, []*backends.MariaDBServer{s}, func(s *backends.MariaDBServer) { s.Restart(t) })
	}},
	{name: "postgres", seed: 7, start: func(t *testing.T, _ *dice) (string, []torture.Fault) {
		s := backends.Postgres(t, backends.PostgresOptions{})
		return s.URL("postgres", ""), []torture.Fault{
			// SIGQUIT ends all of its processes as a crash does.
			{Kind: "server killed", Weight: 20, Begin: func(int) (func() error, error) {
				if err := syscall.Kill(s.PID(), syscall.SIGQUIT); err != nil {
					return nil, err
				}
				<-s.Done()
				return func() error { s.Restart(t); return nil }, nil
			}},
			{Kind: "server stopped", Weight: 20, Begin: func(int) (func() error, error) {
				resume := s.Pause(t)
				return func() error { resume(); return nil }, nil
			}},
		}
	}},
}

// ensembles take longer to start, and more of the machine: a build leaves them
// out, their stores' own tests have their faults one by one.
var ensembles = []scenario{
	{name: "etcd of three", seed: 11, ttl: 5 * time.Second, start: func(t *testing.T, rnd *dice) (string, []torture.Fault) {
		s := backends.Etcd(t, backends.EtcdOptions{Members: 3})
		return s.URL(""), strikes(t, rnd, s.Members, func(m *backends.EtcdMember) { m.Restart(t) })
	}},
	{name: "old etcd of three", seed: 12, ttl: 5 * time.Second, start: func(t *testing.T, rnd *dice) (string, []torture.Fault) {
		s := backends.Etcd(t, backends.EtcdOptions{Version: backends.EtcdOld, Members: 3})
		return s.URL(""), strikes(t, rnd, s.Members, func(m *backends.EtcdMember) { m.Restart(t) })
	}},
	{name: "zookeeper of three", seed: 13, ttl: 5 * time.Second, start: func(t *testing.T, rnd *dice) (string, []torture.Fault) {
		s := backends.ZooKeeper(t, backends.ZooKeeperOptions{Members: 3})
		return s.URL("", ""), strikes(t, rnd, s.Members, func(m *backends.ZooKeeperMember) { m.Restart(t) })
	}},
	{name: "redlock of five", seed: 14, start: func(t *testing.T, rnd *dice) (string, []torture.Fault) {
		var nodes []*backends.RedisServer
		var hosts []string
		for range 5 {
			s := backends.Redis(t, backends.RedisOptions{Durable: true})
			nodes, hosts = append(nodes, s), append(hosts, s.Addr())
		}
		return "redlock://" + strings.Join(hosts, ","), strikes(t, rnd, nodes, func(s *backends.RedisServer) { s.Restart(t) })
	}},
}

// must waits for a condition of the servers.
func must(what string, ok func() bool) error {
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			return fmt.Errorf("after a minute: still not: %s", what)
		}
	}
	return nil
}
