package once

import (
	"context"
	"flag"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/anylock"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
)

var (
	storeURL   = flag.String("once.store", "", "the store of TestSlotsOnAStore: a URL, or the scheme of a server that the test starts; in memory and fake time if empty")
	storeHosts = flag.Int("once.hosts", 50, "how many hosts it has")
)

// TestSlotsOnAStore checks the same as TestEachSlotIsFinishedOnce on the store of a
// URL, in the world of [InRealTime]. Without a URL it runs a tenth of that in fake
// time. Module natslock has the same test, as the root module has no client of NATS.
func TestSlotsOnAStore(t *testing.T) {
	world := InRealTime(*seed, *storeHosts)
	if *storeURL == "" {
		world.Slots = 5
		synctest.Test(t, func(t *testing.T) {
			w := worldInMemory(1, 1)
			world.Open = w.Open
			world.run(t)
		})
		return
	}
	url := storeOf(t, *storeURL)
	world.Open = func() (driver.Driver, error) { return anylock.OpenDriver(context.Background(), url) }
	world.run(t)
}

// storeOf returns the URL of a store. For the scheme of a store alone, it starts a
// server.
func storeOf(t *testing.T, store string) (url string) {
	switch store {
	case "sqlite":
		return "sqlite:" + filepath.Join(t.TempDir(), "locks.db")
	case "redis":
		return servers.Redis(t, servers.RedisOptions{}).URL("")
	case "sentinel":
		return servers.RedisSentinelsOf(t, servers.RedisSentinelOptions{DownAfter: 600_000}).URL("") // a failover may forget marks
	case "cluster":
		return servers.RedisClusterOf(t, servers.RedisClusterOptions{NodeTimeout: time.Minute, NoReplicas: true}).URL("")
	case "etcd":
		return servers.Etcd(t, servers.EtcdOptions{}).URL("")
	case "zk":
		return servers.ZooKeeper(t, servers.ZooKeeperOptions{}).URL("", "")
	case "postgres":
		return servers.Postgres(t, servers.PostgresOptions{}).URL("postgres", "")
	case "mariadb":
		return servers.MariaDB(t, servers.MariaDBOptions{}).URL("holdfast", "")
	}
	return store
}

// run runs a world, and fails t for each breach.
func (w World) run(t *testing.T) {
	t.Helper()
	rep, err := w.Run()
	t.Log(rep)
	if err != nil {
		t.Error(err)
	}
}
