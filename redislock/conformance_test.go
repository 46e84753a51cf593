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
	"github.com/holdfast-go/holdfast/drivertest/locktest"
	"github.com/holdfast-go/holdfast/drivertest/procs"
	"github.com/holdfast-go/holdfast/internal/backends"
)

func TestMain(m *testing.M) {
	procs.Child(func(target string) (driver.Driver, error) {
		if strings.HasPrefix(target, "redis-sentinel") {
			return OpenSentinel(context.Background(), target)
		}
		return Open(context.Background(), target)
	})
	flag.Parse()
	if err := flag.Set("test.parallel", "16"); err != nil { // the tests wait more than they work
		panic(err)
	}
	backends.Main(m)
}

// openAt opens the driver for a URL. The test closes it.
func openAt[D driver.Driver](t testing.TB, open func(context.Context, string) (D, error), url string) D {
	t.Helper()
	d, err := open(context.Background(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// openOn opens a driver that the test closes, on a server, with these options
// in the URL's query.
func openOn(t testing.TB, s *backends.RedisServer, query string) *Driver {
	t.Helper()
	return openAt(t, Open, s.URL(query))
}

// harness describes a server of the test's own to the suite.
func harness(t *testing.T) drivertest.Harness {
	clock := backends.NewClock(t, t.TempDir())
	s := backends.Redis(t, backends.RedisOptions{Env: clock.Env()})
	return drivertest.Harness{
		Open: func(dt drivertest.T) driver.Driver {
			d, err := Open(context.Background(), s.URL("timeout=10s"))
			if err != nil {
				dt.Fatalf("Open: %v", err)
			}
			return d
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
		Connections: func(drivertest.T) int { n, _ := strconv.Atoi(s.Info(t, "clients", "connected_clients")); return n },
	}
}

// snapshotOf copies all keys, and returns what brings them back.
func snapshotOf(t *testing.T, s *backends.RedisServer) (restore func()) {
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

func TestConformance(t *testing.T) {
	drivertest.Run(t, harness(t))
}

// everyCase makes second runs of the suite on one kind of server complete.
var everyCase = flag.Bool("redislock.all", false, "run the whole suite on clients that the user opened, and on older clusters, too")

// except leaves out all cases but those whose names begin so.
func except(kept ...string) map[string]string {
	out := make(map[string]string)
	for _, c := range drivertest.Cases() {
		if !*everyCase && !slices.ContainsFunc(kept, func(k string) bool { return strings.HasPrefix(c.Name, k) }) {
			out[c.Name] = "run elsewhere by the same scripts; -redislock.all runs it here too"
		}
	}
	return out
}

// On a client that the user opened, which speaks the older protocol and has
// several connections. The scripts are the same, so these are the cases that
// lean on how answers are read, on the order of requests, on pushes and on what
// is left of a client that is closed.
func TestConformanceOfNew(t *testing.T) {
	s := backends.Redis(t, backends.RedisOptions{})
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
		LeaveOut: except("join-", "try-", "leave-", "push-", "inspect", "names", "close-", "waiting-", "hammer-mutex", "hammer-cancel"),
	})
}

func TestLocks(t *testing.T) {
	t.Parallel()
	locktest.Run(t, harness(t))
}

func TestProcesses(t *testing.T) {
	t.Parallel()
	s := backends.Redis(t, backends.RedisOptions{})
	procs.Run(t, procs.Store{Target: s.URL(""), TTL: 2 * time.Second})
}
