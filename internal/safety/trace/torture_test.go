package trace_test

import (
	"context"
	"flag"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/anylock"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/safety/torture"
	"github.com/holdfast-go/holdfast/internal/safety/trace"
	"github.com/holdfast-go/holdfast/internal/testkit/broken"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
	"github.com/holdfast-go/holdfast/memlock"
)

var (
	tortured    = flag.String("trace.torture", "memory", "of which stores TestRecordTorture records a run: memory, sqlite, redis, etcd, zookeeper, postgres, mariadb, or flaw=NAME, separated by commas")
	tortureFor  = flag.Duration("trace.torture-for", 500*time.Millisecond, "how long each run disturbs its clients")
	tortureSeed = flag.Uint64("trace.torture-seed", 1, "the seed of the runs")
)

// tortureTTL is a lease of which module Trace can count the parts.
const tortureTTL = time.Second

// openerOf returns what opens a store of a name.
func openerOf(t *testing.T, name string) func(context.Context) (driver.Driver, error) {
	at := func(url string) func(context.Context) (driver.Driver, error) {
		return func(ctx context.Context) (driver.Driver, error) { return anylock.OpenDriver(ctx, url) }
	}
	switch kind, which, _ := strings.Cut(name, "="); kind {
	case "memory":
		s := memlock.NewStore()
		return func(context.Context) (driver.Driver, error) { return memlock.New(s), nil }
	case "flaw":
		s := broken.NewStore(which)
		return func(context.Context) (driver.Driver, error) { return broken.New(s), nil }
	case "sqlite":
		return at("sqlite:" + filepath.Join(t.TempDir(), "locks.db"))
	case "redis":
		return at(servers.Redis(t, servers.RedisOptions{}).URL(""))
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

// recordTorture runs a torture of a store whose clients are in this process, with a
// recorder below the faults of their requests.
func recordTorture(t *testing.T, name string) ([]trace.Event, torture.Report) {
	r := trace.NewServerRecorder(*tortureSeed)
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
		if !strings.HasPrefix(name, "flaw=") && !report.OK() {
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
			if !grow {
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
