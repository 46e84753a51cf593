package servers

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/safety/torture"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
)

var safe = []scenario{
	{name: "sqlite", seed: 1, start: func(t *testing.T, _ *faultSource) deployment {
		return deployment{url: "sqlite:" + filepath.Join(t.TempDir(), "locks.db")}
	}},
	{name: "redis", seed: 2, start: func(t *testing.T, rnd *faultSource) deployment {
		s := servers.Redis(t, servers.RedisOptions{Durable: true})
		return deployment{url: s.URL(""), own: dataKeepingFaults(t, rnd, []*servers.RedisServer{s}, func(s *servers.RedisServer) { s.Restart(t) })}.
			proxied(t, rnd, s.Addr())
	}},
	{name: "redlock", seed: 3, start: func(t *testing.T, rnd *faultSource) deployment { return redlock(t, rnd, 3) }},
	{name: "etcd", seed: 4, start: func(t *testing.T, rnd *faultSource) deployment {
		s := servers.Etcd(t, servers.EtcdOptions{})
		return deployment{url: s.URL(""), own: dataKeepingFaults(t, rnd, s.Members, func(m *servers.EtcdMember) { m.Restart(t) })}.
			proxied(t, rnd, s.Members[0].Addr())
	}},
	{name: "zookeeper", seed: 5, start: func(t *testing.T, rnd *faultSource) deployment {
		s := servers.ZooKeeper(t, servers.ZooKeeperOptions{})
		return deployment{url: s.URL("", ""), own: dataKeepingFaults(t, rnd, s.Members, func(m *servers.ZooKeeperMember) { m.Restart(t) })}.
			proxied(t, rnd, s.Members[0].Addr())
	}},
	{name: "mariadb", seed: 6, start: func(t *testing.T, rnd *faultSource) deployment { return mariadb(t, rnd) }},
	{name: "postgres", seed: 7, start: func(t *testing.T, rnd *faultSource) deployment { return postgres(t, rnd) }},
}

func mariadb(t *testing.T, rnd *faultSource, settings ...string) deployment {
	s := servers.MariaDB(t, servers.MariaDBOptions{Settings: settings})
	addr := strings.Split(strings.Split(s.URL("holdfast", ""), "@")[1], "/")[0]
	return deployment{url: s.URL("holdfast", ""), own: dataKeepingFaults(t, rnd, []*servers.MariaDBServer{s}, func(s *servers.MariaDBServer) { s.Restart(t) })}.
		proxied(t, rnd, addr)
}

func postgres(t *testing.T, rnd *faultSource, settings ...string) deployment {
	s := servers.Postgres(t, servers.PostgresOptions{Settings: settings})
	addr := strings.Split(strings.Split(s.URL("postgres", ""), "@")[1], "/")[0]
	var resume func()
	return deployment{url: s.URL("postgres", ""), own: []torture.Fault{
		// SIGQUIT ends all of the server's processes as a crash does.
		oneFault("server killed", func() error {
			if err := syscall.Kill(s.PID(), syscall.SIGQUIT); err != nil {
				return err
			}
			<-s.Done()
			return nil
		}, func() { s.Restart(t) }),
		oneFault("server stopped", func() error { resume = s.Pause(t); return nil }, func() { resume() }),
	}}.proxied(t, rnd, addr)
}

// ensembles are the scenarios with several servers, which take longer to start
// and need more of the machine. A build leaves them out: the tests of their
// stores have their faults one by one.
var ensembles = []scenario{
	{name: "etcd of three", seed: 11, ttl: 5 * time.Second, start: func(t *testing.T, rnd *faultSource) deployment {
		s := servers.Etcd(t, servers.EtcdOptions{Members: 3})
		return deployment{url: s.URL(""), own: dataKeepingFaults(t, rnd, s.Members, func(m *servers.EtcdMember) { m.Restart(t) })}
	}},
	{name: "old etcd of three", seed: 12, ttl: 5 * time.Second, start: func(t *testing.T, rnd *faultSource) deployment {
		s := servers.Etcd(t, servers.EtcdOptions{Version: servers.EtcdOld, Members: 3})
		return deployment{url: s.URL(""), own: dataKeepingFaults(t, rnd, s.Members, func(m *servers.EtcdMember) { m.Restart(t) })}
	}},
	{name: "zookeeper of three", seed: 13, ttl: 5 * time.Second, start: func(t *testing.T, rnd *faultSource) deployment {
		s := servers.ZooKeeper(t, servers.ZooKeeperOptions{Members: 3})
		return deployment{url: s.URL("", ""), own: dataKeepingFaults(t, rnd, s.Members, func(m *servers.ZooKeeperMember) { m.Restart(t) })}
	}},
	{name: "redlock of five", seed: 14, start: redlockOfFive},
	// F42: with the restart guard, which is on by default, a node that may have
	// forgotten its votes does not vote.
	{name: "redlock of five that forgets with the guard", seed: 15, long: often, start: func(t *testing.T, rnd *faultSource) deployment {
		return redlockThatForgets(t, rnd, 3, "")
	}},
}
