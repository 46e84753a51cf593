package trace_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/anylock"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/safety/torture"
	"github.com/holdfast-go/holdfast/internal/safety/trace"
	"github.com/holdfast-go/holdfast/internal/testkit/broken"
	"github.com/holdfast-go/holdfast/internal/testkit/faultproxy"
	"github.com/holdfast-go/holdfast/internal/testkit/faults"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
	"github.com/holdfast-go/holdfast/memlock"
	"github.com/holdfast-go/holdfast/redlock"
)

var (
	tortured    = flag.String("trace.torture", "memory", "of which stores TestRecordTorture records a run: memory, sqlite, redis, sentinel, cluster, redlock, redlock-memory, etcd, zookeeper, postgres, mariadb, flaw=NAME, or redlock-flaw=NAME with that flaw in each node, separated by commas; after cut= the clients lose their connections")
	tortureFor  = flag.Duration("trace.torture-for", 500*time.Millisecond, "how long each run disturbs its clients")
	tortureSeed = flag.Uint64("trace.torture-seed", 1, "the seed of the runs")
)

// tortureTTL is a lease of which module Trace can count the parts.
const tortureTTL = time.Second

// An opener opens one client of a store.
type opener func(context.Context) (driver.Driver, error)

// openerAt returns what opens the store at a URL.
func openerAt(url string) opener {
	return func(ctx context.Context) (driver.Driver, error) { return anylock.OpenDriver(ctx, url) }
}

// openerOf returns what opens a store of a name.
func openerOf(t *testing.T, name string) opener {
	at := openerAt
	switch kind, which, _ := strings.Cut(name, "="); kind {
	case "cut":
		return cutOpenerOf(t, which)
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
func redlockInMemory(flaw string) opener {
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
// in the middle of calls: those of a server by a proxy before it, others by a plan.
func cutOpenerOf(t *testing.T, name string) opener {
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
		open := openerOf(t, name)
		return func(ctx context.Context) (driver.Driver, error) {
			d, err := open(ctx)
			if err != nil {
				return nil, err
			}
			return faults.Wrap(d, faults.Plan{Seed: *tortureSeed, Rules: []faults.Rule{
				// Joins are late often enough to arrive after their tickets have left.
				{On: faults.Join, Odds: 15, Do: faults.HoldRequest, For: tortureTTL / 3},
				{Odds: 3, Do: faults.LoseAnswer}, {Odds: 3, Do: faults.CutRequest}, {Odds: 3, Do: faults.HoldRequest, For: tortureTTL / 3},
			}}), nil
		}
	}
	p := faultproxy.Between(t, addr)
	rnd := rand.New(rand.NewPCG(*tortureSeed, 0))
	ctx, stop := context.WithCancel(context.Background())
	var cutting sync.WaitGroup
	cutting.Go(func() {
		for ctx.Err() == nil {
			p.Arm(1+rnd.IntN(40), []faultproxy.When{faultproxy.Before, faultproxy.After}[rnd.IntN(2)], []faultproxy.How{faultproxy.Close, faultproxy.Reset}[rnd.IntN(2)])
			select {
			case <-time.After(tortureTTL / 2):
			case <-ctx.Done():
			}
			p.Disarm()
		}
	})
	t.Cleanup(func() {
		stop()
		cutting.Wait()
	})
	return openerAt(strings.ReplaceAll(url, addr, p.Addr()))
}

// recordTorture runs a torture of a store whose clients are in this process, with a
// recorder below the faults of their requests.
func recordTorture(t *testing.T, name string) ([]trace.Event, torture.Report) {
	r := trace.NewServerRecorder(*tortureSeed)
	if strings.HasPrefix(name, "cut=") {
		r = trace.NewCutRecorder(*tortureSeed)
	}
	open := openerOf(t, name)
	report, err := torture.Run(context.Background(), torture.Config{
		Store: name, Duration: *tortureFor, Processes: 3, Goroutines: 2, Names: 4, TTL: tortureTTL, Seed: *tortureSeed,
		Faults: []string{torture.Requests}, Slack: 10 * time.Second, Repeat: "go test",
		Open: func(ctx context.Context, _ string) (driver.Driver, error) {
			d, err := open(ctx)
			if err != nil {
				return nil, err
			}
			return r.Wrap(d), nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return r.Events(), report
}

// TestRecordTorture writes the requests of torture runs, which internal/proof holds
// against the specification. Without a folder it checks that they can be written as
// a module.
func TestRecordTorture(t *testing.T) {
	for name := range strings.SplitSeq(*tortured, ",") {
		events, report := recordTorture(t, name)
		if !strings.Contains(name, "flaw=") && !report.OK() {
			t.Errorf("%s: %q", name, report.Violations)
		}
		t.Logf("%s: %d events of %d calls and %d disturbed requests", name, len(events), report.Calls, report.Requests)
		traces, err := trace.Split(events)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		parts := 0
		for i := range traces {
			cut, grow := trace.Cut(&traces[i])
			if !grow && !strings.Contains(name, "flaw=") {
				t.Errorf("%s: tokens of %q do not grow", name, traces[i].Name)
			}
			parts += len(cut)
			for j := range cut {
				if err := trace.Module(&strings.Builder{}, "Recorded", []*trace.Trace{&cut[j]}); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
		}
		if len(traces) == 0 || parts < len(traces) || report.Grants == 0 {
			t.Errorf("%s: %d traces in %d parts, %d grants", name, len(traces), parts, report.Grants)
		}
		if *out == "" {
			continue
		}
		if err := writeTo(filepath.Join(*out, fmt.Sprintf("%s.jsonl", name)), events); err != nil {
			t.Fatal(err)
		}
	}
}
