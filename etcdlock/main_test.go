package etcdlock_test

import (
	"context"
	"flag"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivertest"
	"github.com/holdfast-go/holdfast/drivertest/locktest"
	"github.com/holdfast-go/holdfast/drivertest/procs"
	"github.com/holdfast-go/holdfast/etcdlock"
	"github.com/holdfast-go/holdfast/internal/backends"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
)

func TestMain(m *testing.M) {
	procs.Child(func(target string) (driver.Driver, error) { return etcdlock.Open(context.Background(), target) })
	// Most tests wait for leases to end: they do that together, also where
	// there are few processors.
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	backends.Main(m)
}

var ctx = context.Background()

var versions = []backends.EtcdVersion{backends.EtcdNewest, backends.EtcdOld}

// onEach runs a test on the newest release and on Debian's.
func onEach(t *testing.T, f func(t *testing.T, v backends.EtcdVersion)) {
	for _, v := range versions {
		t.Run(string(v), func(t *testing.T) { f(t, v) })
	}
}

// open returns a driver of a server; the test's end closes it.
func open(t drivertest.T, s *backends.EtcdServer, query string) *etcdlock.Driver {
	t.Helper()
	d, err := etcdlock.Open(ctx, s.URL(query))
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// dialed returns a client of the library to give to a driver, which quietly ends
// with the test.
func dialed(t testing.TB, s *backends.EtcdServer, opts ...grpc.DialOption) *clientv3.Client {
	t.Helper()
	cli, err := clientv3.New(clientv3.Config{Endpoints: s.Endpoints(), DialTimeout: 10 * time.Second, Logger: zap.NewNop(), DialOptions: opts})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cli.Close() })
	return cli
}

// floors is left out everywhere.
const floors = "tokens are revisions of the store, which nobody can raise: a floor above them is refused"

// leftOut are the cases that run on the newest release alone: they take long,
// and what they check is done by the driver, in requests to the server of which
// other cases make the same.
func leftOut(v backends.EtcdVersion) map[string]string {
	out := map[string]string{"token-floor": floors}
	if v == backends.EtcdNewest {
		return out
	}
	for reason, names := range map[string][]string{
		"ends of leases are asked for by dead-holder and dead-holder-try": {
			"dead-readers", "dead-waiter", "many-dead", "recheck", "tokens-after-expiry", "owner-in-part-dead",
			"push-for-the-dead", "dead-holder-renewed", "limit-of-the-dead", "grant-extends-nothing", "renew-too-late", "inspect-renews-nothing",
		},
		"keep-alives are asked for by renew-keeps":                               {"join-renews"},
		"crowds are asked for by hammer-mutex, hammer-readers and hammer-faults": {"hammer-try", "hammer-units", "hammer-cancel", "hammer-lines"},
		"costs and pages are the driver's":                                       {"waiting-costs-nothing", "names-many", "renew-200"},
		"how names, owners and metadata are written is the driver's":             {"nasty-names", "nasty-owners", "inspect-meta"},
	} {
		for _, name := range names {
			out[name] = "on the newest release alone: " + reason
		}
	}
	return out
}

func TestConformance(t *testing.T) {
	onEach(t, func(t *testing.T, v backends.EtcdVersion) {
		s := backends.SharedEtcd(t, v)
		h := drivertest.Harness{
			Open:    func(t drivertest.T) driver.Driver { return open(t, s, "prefix=suite/") },
			TTL:     2 * time.Second,
			Slack:   2 * time.Second,
			Restart: func(drivertest.T) { s.Members[0].Restart(t) },
			Pause: func(drivertest.T) func() {
				s.Members[0].Pause(t)
				time.Sleep(20 * time.Millisecond) // until all its threads have stopped
				return func() { s.Members[0].Resume(t) }
			},
			LeaveOut: leftOut(v),
		}
		if v != backends.EtcdNewest {
			h.Clients, h.Rounds = 3, 5
		}
		drivertest.Run(t, h)
	})
}

// TestLocks runs on the newest release: what differs between releases is what
// a driver hears, which TestConformance asks of each. Locks on the old one are
// in the tests of faults, of clusters and of foreign clients.
func TestLocks(t *testing.T) {
	t.Parallel()
	s := backends.SharedEtcd(t, backends.EtcdNewest)
	locktest.Run(t, drivertest.Harness{
		Open: func(t drivertest.T) driver.Driver { return open(t, s, "prefix=locks/") },
		TTL:  4 * time.Second,
	})
}

// TestProcesses kills and pauses real processes: the next holder comes within
// the TTL, 5 %, 250 ms and the store's granularity.
func TestProcesses(t *testing.T) {
	t.Parallel()
	s := backends.SharedEtcd(t, backends.EtcdNewest)
	procs.Run(t, procs.Store{Target: s.URL("prefix=procs/"), TTL: 2 * time.Second, Slack: etcdlock.Granularity + 500*time.Millisecond})
}
