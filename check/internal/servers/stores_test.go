package servers

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/check/torture"
	"github.com/holdfast-go/holdfast/internal/backends"
)

var safe = []scenario{
	{name: "sqlite", seed: 1, start: func(t *testing.T, _ *dice) scene {
		return scene{url: "sqlite:" + filepath.Join(t.TempDir(), "locks.db")}
	}},
	{name: "redis", seed: 2, start: func(t *testing.T, rnd *dice) scene {
		s := backends.Redis(t, backends.RedisOptions{Durable: true})
		return scene{url: s.URL(""), own: strikes(t, rnd, []*backends.RedisServer{s}, func(s *backends.RedisServer) { s.Restart(t) })}.
			proxied(t, rnd, s.Addr())
	}},
	{name: "redlock", seed: 3, start: func(t *testing.T, rnd *dice) scene { return redlock(t, rnd, 3) }},
	{name: "etcd", seed: 4, start: func(t *testing.T, rnd *dice) scene {
		s := backends.Etcd(t, backends.EtcdOptions{})
		return scene{url: s.URL(""), own: strikes(t, rnd, s.Members, func(m *backends.EtcdMember) { m.Restart(t) })}.
			proxied(t, rnd, s.Members[0].Addr())
	}},
	{name: "zookeeper", seed: 5, start: func(t *testing.T, rnd *dice) scene {
		s := backends.ZooKeeper(t, backends.ZooKeeperOptions{})
		return scene{url: s.URL("", ""), own: strikes(t, rnd, s.Members, func(m *backends.ZooKeeperMember) { m.Restart(t) })}.
			proxied(t, rnd, s.Members[0].Addr())
	}},
	{name: "mariadb", seed: 6, start: func(t *testing.T, rnd *dice) scene { return mariadb(t, rnd) }},
	{name: "postgres", seed: 7, start: func(t *testing.T, rnd *dice) scene { return postgres(t, rnd) }},
}

func mariadb(t *testing.T, rnd *dice, settings ...string) scene {
	s := backends.MariaDB(t, backends.MariaDBOptions{Settings: settings})
	addr := strings.Split(strings.Split(s.URL("holdfast", ""), "@")[1], "/")[0]
	return scene{url: s.URL("holdfast", ""), own: strikes(t, rnd, []*backends.MariaDBServer{s}, func(s *backends.MariaDBServer) { s.Restart(t) })}.
		proxied(t, rnd, addr)
}

func postgres(t *testing.T, rnd *dice, settings ...string) scene {
	s := backends.Postgres(t, backends.PostgresOptions{Settings: settings})
	addr := strings.Split(strings.Split(s.URL("postgres", ""), "@")[1], "/")[0]
	var resume func()
	return scene{url: s.URL("postgres", ""), own: []torture.Fault{
		// SIGQUIT ends all of its processes as a crash does.
		once("server killed", func() error {
			if err := syscall.Kill(s.PID(), syscall.SIGQUIT); err != nil {
				return err
			}
			<-s.Done()
			return nil
		}, func() { s.Restart(t) }),
		once("server stopped", func() error { resume = s.Pause(t); return nil }, func() { resume() }),
	}}.proxied(t, rnd, addr)
}

// ensembles take longer to start, and more of the machine: a build leaves them
// out, their stores' own tests have their faults one by one.
var ensembles = []scenario{
	{name: "etcd of three", seed: 11, ttl: 5 * time.Second, start: func(t *testing.T, rnd *dice) scene {
		s := backends.Etcd(t, backends.EtcdOptions{Members: 3})
		return scene{url: s.URL(""), own: strikes(t, rnd, s.Members, func(m *backends.EtcdMember) { m.Restart(t) })}
	}},
	{name: "old etcd of three", seed: 12, ttl: 5 * time.Second, start: func(t *testing.T, rnd *dice) scene {
		s := backends.Etcd(t, backends.EtcdOptions{Version: backends.EtcdOld, Members: 3})
		return scene{url: s.URL(""), own: strikes(t, rnd, s.Members, func(m *backends.EtcdMember) { m.Restart(t) })}
	}},
	{name: "zookeeper of three", seed: 13, ttl: 5 * time.Second, start: func(t *testing.T, rnd *dice) scene {
		s := backends.ZooKeeper(t, backends.ZooKeeperOptions{Members: 3})
		return scene{url: s.URL("", ""), own: strikes(t, rnd, s.Members, func(m *backends.ZooKeeperMember) { m.Restart(t) })}
	}},
	{name: "redlock of five", seed: 14, start: redlockOfFive},
	// F42: with the guard, which is on unless one says otherwise, nobody votes who
	// may have forgotten.
	{name: "redlock of five that forgets with the guard", seed: 15, long: often, start: func(t *testing.T, rnd *dice) scene {
		return redlockThatForgets(t, rnd, 3, "")
	}},
}
