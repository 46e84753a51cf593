package redislock

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivertest"
	"github.com/holdfast-go/holdfast/internal/testkit/multiproc"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
)

func TestMain(m *testing.M) {
	multiproc.Child(func(target string) (driver.Driver, error) {
		if strings.HasPrefix(target, "redis-sentinel") {
			return OpenSentinel(context.Background(), target)
		}
		return Open(context.Background(), target)
	})
	flag.Parse()
	// The tests wait more than they work, and more than twenty of them wait
	// for room for their servers: those that have a server need places for
	// their parallel parts.
	if err := flag.Set("test.parallel", "32"); err != nil {
		panic(err)
	}
	servers.Main(m)
}

// openAt opens the driver for a URL. The end of the test closes it.
func openAt[D driver.Driver](t testing.TB, open func(context.Context, string) (D, error), url string) D {
	t.Helper()
	d, err := open(context.Background(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// openOn opens a driver on a server, with these options in the URL's query.
// The end of the test closes the driver.
func openOn(t testing.TB, s *servers.RedisServer, query string) *Driver {
	t.Helper()
	return openAt(t, Open, s.URL(query))
}

// clockBack is the reason for leaving a case out.
const clockBack = "keys expire at a time of the server's clock: set back, the dead block for as much longer (docs/operations.md, Clocks)"

// harness describes a server of the test's own to the suite.
func harness(t *testing.T) drivertest.Harness {
	clock := servers.NewClock(t, t.TempDir())
	s := servers.Redis(t, servers.RedisOptions{Env: clock.Env()})
	return drivertest.Harness{
		TellsLeft: true,
		Open: func(dt drivertest.T) driver.Driver {
			d, err := Open(context.Background(), s.URL("timeout=10s"))
			if err != nil {
				dt.Fatalf("Open: %v", err)
			}
			return d
		},
		OpenAt: func(ctx context.Context, address string) (driver.Driver, error) {
			return Open(ctx, "redis://"+address)
		},
		TTL: 2 * time.Second,
		Pause: func(drivertest.T) func() {
			s.Pause(t)
			return func() { s.Resume(t) }
		},
		Restart:     func(drivertest.T) { s.Restart(t) },
		LoseData:    func(drivertest.T) { s.Do(t, "FLUSHALL") },
		Snapshot:    func(drivertest.T) func() { return snapshotOf(t, s) },
		StepClock:   func(_ drivertest.T, d time.Duration) { clock.Step(t, d) },
		LeaveOut:    map[string]string{"clock-back-dead": clockBack},
		Connections: func(drivertest.T) int { n, _ := strconv.Atoi(s.Info(t, "clients", "connected_clients")); return n },
		Rows:        func(drivertest.T) int { return int(s.Do(t, "DBSIZE").(int64)) },
		Rights:      rightsOn(t, s),
	}
}

// snapshotOf copies all keys, and returns the function that restores them.
func snapshotOf(t *testing.T, s *servers.RedisServer) (restore func()) {
	type key struct{ name, dump, ttl string }
	var keys []key
	for _, name := range texts(s.Do(t, "KEYS", "*")) {
		dump, _ := s.Do(t, "DUMP", name).(string)
		keys = append(keys, key{name, dump, fmt.Sprint(max(0, s.Do(t, "PTTL", name).(int64)))})
	}
	return func() {
		s.Do(t, "FLUSHALL")
		for _, k := range keys {
			s.Do(t, "RESTORE", k.name, k.ttl, k.dump)
		}
	}
}

func TestDriverConformance(t *testing.T) {
	drivertest.Run(t, harness(t))
}

// everyCase makes second runs of the suite on one kind of server complete.
var everyCase = flag.Bool("redislock.all", false, "run the whole suite on clients that the user opened, and on older clusters, too")

// except leaves out all cases but those whose names begin with a kept prefix.
func except(kept ...string) map[string]string {
	out := make(map[string]string)
	for _, c := range drivertest.Cases() {
		if !*everyCase && !slices.ContainsFunc(kept, func(k string) bool { return strings.HasPrefix(c.Name, k) }) {
			out[c.Name] = "run elsewhere by the same scripts; -redislock.all runs it here too"
		}
	}
	return out
}

// TestConformanceOfNew runs the suite on a client that the user opened, which
// speaks the older protocol and has several connections. The scripts are the
// same, so it runs the cases that depend on how answers are read, on the order
// of requests, on pushes, and on the remains of a closed client.
func TestConformanceOfNew(t *testing.T) {
	s := servers.Redis(t, servers.RedisOptions{})
	client, err := rueidis.NewClient(rueidis.ClientOption{
		InitAddress: []string{s.Addr()}, ForceSingleClient: true, DisableCache: true, AlwaysRESP2: true,
		SelectDB: 3, PipelineMultiplex: 2, ReadBufferEachConn: 16 << 10, WriteBufferEachConn: 16 << 10, RingScaleEachConn: 8,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	drivertest.Run(t, drivertest.Harness{
		Open: func(dt drivertest.T) driver.Driver {
			d, err := New(client, &Options{NoPrefix: true})
			if err != nil {
				dt.Fatalf("New: %v", err)
			}
			return d
		},
		TTL:      time.Second,
		LeaveOut: except("join-", "try-", "leave-", "push-", "inspect", "names", "close-", "waiting-", "hammer-mutex", "hammer-cancel", "mark"),
	})
}

func TestLocks(t *testing.T) {
	t.Parallel()
	h := harness(t)
	h.TTL = 4 * time.Second // a busy machine can renew its leases in time
	drivertest.RunLocks(t, h)
}

func TestLocksAcrossProcesses(t *testing.T) {
	t.Parallel()
	s := servers.Redis(t, servers.RedisOptions{})
	multiproc.Run(t, multiproc.Store{Target: s.URL(""), TTL: 2 * time.Second})
}
