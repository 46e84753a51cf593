package trace_test

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/holdfast-go/holdfast/anylock"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/safety/trace/tracetest"
	"github.com/holdfast-go/holdfast/internal/testkit/broken"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
	"github.com/holdfast-go/holdfast/memlock"
	"github.com/holdfast-go/holdfast/redlock"
)

// openerAt returns what opens the store at a URL.
func openerAt(url string) tracetest.Opener {
	return func(ctx context.Context) (driver.Driver, error) { return anylock.OpenDriver(ctx, url) }
}

// openerOf returns what opens a store of a name: memory, sqlite, redis, sentinel,
// cluster, redlock, redlock-memory, etcd, zookeeper, postgres, mariadb, flaw=NAME, or
// redlock-flaw=NAME with that flaw in each node, and each of them after cut=.
func openerOf(t *testing.T, name string, cutting *tracetest.Cutting) tracetest.Opener {
	at := openerAt
	switch kind, which, _ := strings.Cut(name, "="); kind {
	case "cut":
		return cutOpenerOf(t, which, cutting)
	case "memory":
		s := memlock.NewStore()
		return func(context.Context) (driver.Driver, error) { return memlock.New(s), nil }
	case "flaw":
		s := broken.NewStore(which)
		return func(context.Context) (driver.Driver, error) { return broken.New(s), nil }
	case "redlock-memory":
		return redlockInMemory(broken.None)
	case "redlock-flaw":
		return redlockInMemory(which)
	case "redlock":
		return at(redlockURL(t))
	case "sqlite":
		return at("sqlite:" + filepath.Join(t.TempDir(), "locks.db"))
	case "redis":
		return at(servers.Redis(t, servers.RedisOptions{}).URL(""))
	case "sentinel":
		return at(servers.RedisSentinelsOf(t, servers.RedisSentinelOptions{}).URL(""))
	case "cluster":
		return at(servers.RedisClusterOf(t, servers.RedisClusterOptions{}).URL(""))
	case "etcd":
		return at(servers.Etcd(t, servers.EtcdOptions{}).URL(""))
	case "zookeeper":
		return at(servers.ZooKeeper(t, servers.ZooKeeperOptions{}).URL("", ""))
	case "postgres":
		return at(servers.Postgres(t, servers.PostgresOptions{}).URL("postgres", ""))
	case "mariadb":
		return at(servers.MariaDB(t, servers.MariaDBOptions{}).URL("holdfast", ""))
	}
	t.Fatalf("there is no store %q", name)
	return nil
}

// redlockInMemory returns what opens RedLock on three nodes with a flaw, or none. Each
// client gives them in another order, so that several nodes are homes of a name.
func redlockInMemory(flaw string) tracetest.Opener {
	nodes := []*broken.Store{broken.NewStore(flaw), broken.NewStore(flaw), broken.NewStore(flaw)}
	var opened atomic.Int64
	return func(context.Context) (driver.Driver, error) {
		n := int(opened.Add(1))
		var all []driver.Driver
		for i := range nodes {
			all = append(all, broken.New(nodes[(n+i)%len(nodes)]))
		}
		return redlock.New(all, nil)
	}
}

// redlockURL starts three servers, and returns the URL of RedLock on them.
func redlockURL(t *testing.T) string {
	var hosts []string
	for range 3 {
		hosts = append(hosts, servers.Redis(t, servers.RedisOptions{}).Addr())
	}
	return "redlock://" + strings.Join(hosts, ",")
}

// cutOpenerOf returns what opens a store of a name whose clients lose their connections
// in the middle of calls: those of one server by a proxy before it, others by a plan.
func cutOpenerOf(t *testing.T, name string, cutting *tracetest.Cutting) tracetest.Opener {
	var url, addr string
	switch name {
	case "redis":
		s := servers.Redis(t, servers.RedisOptions{})
		url, addr = s.URL(""), s.Addr()
	case "etcd":
		s := servers.Etcd(t, servers.EtcdOptions{})
		url, addr = s.URL(""), s.Members[0].Addr()
	case "zookeeper":
		s := servers.ZooKeeper(t, servers.ZooKeeperOptions{})
		url, addr = s.URL("", ""), s.Members[0].Addr()
	case "postgres":
		s := servers.Postgres(t, servers.PostgresOptions{})
		url, addr = s.URL("postgres", ""), fmt.Sprintf("127.0.0.1:%d", s.Port)
	case "mariadb":
		s := servers.MariaDB(t, servers.MariaDBOptions{})
		url, addr = s.URL("holdfast", ""), fmt.Sprintf("127.0.0.1:%d", s.Port)
	default:
		return cutting.ByPlan(openerOf(t, name, nil))
	}
	return openerAt(strings.ReplaceAll(url, addr, cutting.ByProxy(t, addr)))
}

// TestRecordTorture writes the requests of torture runs, which internal/proof holds
// against the specification. Without a folder it checks that they can be written as
// a module.
func TestRecordTorture(t *testing.T) { tracetest.Torture(t, "memory", openerOf) }
