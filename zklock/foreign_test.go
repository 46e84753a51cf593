package zklock_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivertest"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
)

const (
	kazooHex    = "7e1f2c9a5d604f0bb1c9d8e7f6a5b4c3"
	curatorUUID = "_c_1b6f2c7d-5b5a-4c8e-9a59-9b2e4e9e1e11-"
)

// putNode makes a node with these flags in a queue, as a client of another
// library does, and returns a function that deletes the node.
func putNode(t drivertest.T, addrs []string, queue, node string, flags int32) (remove func()) {
	t.Helper()
	conn, events, err := zk.Connect(addrs, 10*time.Second, zk.WithLogInfo(false))
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
	path := ""
	for _, field := range strings.Split(strings.Trim(queue, "/"), "/") {
		path += "/" + field
		if _, err := conn.Create(path, nil, zk.FlagPersistent, zk.WorldACL(zk.PermAll)); err != nil && !errors.Is(err, zk.ErrNodeExists) {
			t.Fatalf("create %s: %v", path, err)
		}
	}
	made, err := conn.Create(queue+"/"+node, nil, flags, zk.WorldACL(zk.PermAll))
	if err != nil {
		t.Fatalf("create %s in %s: %v", node, queue, err)
	}
	return func() {
		if err := conn.Delete(made, -1); err != nil {
			t.Errorf("delete %s: %v", made, err)
		}
		conn.Close()
		for range events {
		}
	}
}

// foreigners returns the nodes that other programs keep in queues.
func foreigners(addrs []string) []drivertest.Foreign {
	const numbered = zk.FlagEphemeralSequential
	of := func(what, node string, flags int32, meets func(units, limit int64) drivertest.ForeignOutcome) drivertest.Foreign {
		return drivertest.Foreign{Name: what, ErrorNames: node, Outcome: meets, Put: func(t drivertest.T, name string) func() {
			return putNode(t, addrs, lineOf(name), node, flags)
		}}
	}
	return []drivertest.Foreign{
		of("kazoo's Lock or WriteLock", kazooHex+"__lock__", numbered, func(_, _ int64) drivertest.ForeignOutcome { return drivertest.Waits }),
		of("kazoo's ReadLock", kazooHex+"__rlock__", numbered, beside(driver.RWLimit)),
		of("Curator's InterProcessMutex", curatorUUID+"lock-", numbered, beside(1)),
		of("Curator's reader", curatorUUID+"__READ__", numbered, beside(driver.RWLimit)),
		of("Curator's InterProcessSemaphoreV2", "leases", zk.FlagPersistent, nil),
		of("Curator's InterProcessSemaphoreMutex", "locks", zk.FlagPersistent, nil),
		of("Curator's LeaderLatch", curatorUUID+"latch-", numbered, nil),
		of("kazoo's Semaphore", "__lock__", zk.FlagPersistent, nil),
		of("a permit of kazoo's Semaphore", kazooHex, zk.FlagEphemeral, nil),
		of("a lock below the path of another", "nightly", zk.FlagPersistent, nil),
	}
}

// beside returns how a foreign lock of one unit and this limit meets a ticket.
func beside(its int64) func(units, limit int64) drivertest.ForeignOutcome {
	return func(units, limit int64) drivertest.ForeignOutcome {
		switch {
		case limit != its:
			return drivertest.Refused
		case units < limit:
			return drivertest.Shares
		}
		return drivertest.Waits
	}
}

// TestF131_ReaderWokenBehindWriterThatReadsOn checks a reader behind a writer
// of Curator, which from 5.5 on goes on as a reader by a second node of the
// same number. The reader holds as soon as the writer's node goes, in whichever
// order the two nodes are listed.
func TestF131_ReaderWokenBehindWriterThatReadsOn(t *testing.T) {
	t.Parallel()
	s := servers.SharedZooKeeper(t)
	for _, c := range []struct{ writer, reader string }{
		{"11111111-1111-4111-8111-111111111111", "eeeeeeee-1111-4111-8111-111111111111"},
		{"eeeeeeee-1111-4111-8111-111111111111", "11111111-1111-4111-8111-111111111111"},
	} {
		name := unique("reads-on")
		queue := lineOf(name)
		d := open(t, s.URL("", ""))
		t.Cleanup(func() { d.Close() })
		got := watch(t, d)
		writes := putNode(t, s.Addrs(), queue, "_c_"+c.writer+"-__WRIT__", zk.FlagEphemeralSequential)
		number := strings.TrimPrefix(children(t, raw(t, s.Addrs()...), queue)[0], "_c_"+c.writer+"-__WRIT__")
		reads := putNode(t, s.Addrs(), queue, "_c_"+c.reader+"-__READ__"+number, zk.FlagEphemeral)
		tk := ticket2(name, 1)
		tk.Limit = driver.RWLimit
		join(t, d, tk, driver.Waiting)
		writes()
		until(t, "the reader is told that it holds", func() bool { return got.state(tk.ID) == driver.Held })
		leave(t, d, tk, driver.Held)
		reads()
	}
}
