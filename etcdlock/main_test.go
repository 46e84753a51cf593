package etcdlock_test

import (
	"context"
	"flag"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivertest"
	"github.com/holdfast-go/holdfast/etcdlock"
	"github.com/holdfast-go/holdfast/internal/testkit/multiproc"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
)

func TestMain(m *testing.M) {
	multiproc.Child(func(target string) (driver.Driver, error) { return etcdlock.Open(context.Background(), target) })
	// Most tests wait for leases to end. They do that in parallel, even on a
	// machine with few processors.
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	servers.Main(m)
}

var ctx = context.Background()

var versions = []servers.EtcdVersion{servers.EtcdNewest, servers.EtcdOld}

// onEach runs a test on the newest release and on the one in Debian.
func onEach(t *testing.T, f func(t *testing.T, v servers.EtcdVersion)) {
	for _, v := range versions {
		t.Run(string(v), func(t *testing.T) { f(t, v) })
	}
}

// open returns a driver of a server; the end of the test closes it.
func open(t drivertest.T, s *servers.EtcdServer, query string) *etcdlock.Driver {
	t.Helper()
	d, err := etcdlock.Open(ctx, s.URL(query))
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// dialed returns a client of the library for a driver. The client does not log,
// and is closed when the test ends.
func dialed(t testing.TB, s *servers.EtcdServer, opts ...grpc.DialOption) *clientv3.Client {
	t.Helper()
	cli, err := clientv3.New(clientv3.Config{Endpoints: s.Endpoints(), DialTimeout: 10 * time.Second, Logger: zap.NewNop(), DialOptions: opts})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cli.Close() })
	return cli
}

// floors is the reason why no release runs the case token-floor.
const floors = "tokens are revisions of the store, which nobody can raise: a floor above them is refused"

// leftOut returns the cases to leave out on a release, with the reasons. Cases
// that run on the newest release alone take long, and check the driver's own
// work; other cases send the same requests to the server.
func leftOut(v servers.EtcdVersion) map[string]string {
	out := map[string]string{"token-floor": floors}
	if v == servers.EtcdNewest {
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

// pausing returns a function that makes a server silent until the function that
// it returns is called.
func pausing(t *testing.T, s *servers.EtcdServer) func(drivertest.T) func() {
	return func(drivertest.T) func() {
		s.Members[0].Pause(t)
		return func() { s.Members[0].Resume(t) }
	}
}

func TestDriverConformance(t *testing.T) {
	onEach(t, func(t *testing.T, v servers.EtcdVersion) {
		s := servers.SharedEtcd(t, v)
		h := drivertest.Harness{
			Open: func(t drivertest.T) driver.Driver { return open(t, s, "prefix=suite/") },
			OpenAt: func(ctx context.Context, address string) (driver.Driver, error) {
				return etcdlock.Open(ctx, "etcd://"+address)
			},
			TTL:      2 * time.Second,
			Slack:    2 * time.Second,
			Restart:  func(drivertest.T) { s.Members[0].Restart(t) },
			Pause:    pausing(t, s),
			Foreign:  foreigners(dialed(t, s), "suite/"),
			LeaveOut: leftOut(v),
			// A hold's renewal reads nothing once a watch tells of its end.
			LateBreaks: true,
		}
		if v != servers.EtcdNewest {
			h.Clients, h.Rounds = 3, 5
		}
		drivertest.Run(t, h)
	})
}

// TestLocks runs on the newest release: releases differ only in their answers
// to the driver, and TestDriverConformance checks those on each. The tests of faults,
// clusters and foreign clients also take locks on the old one.
func TestLocks(t *testing.T) {
	t.Parallel()
	s := servers.Etcd(t, servers.EtcdOptions{}) // the test pauses the server
	drivertest.RunLocks(t, drivertest.Harness{
		Open:  func(t drivertest.T) driver.Driver { return open(t, s, "prefix=locks/") },
		TTL:   4 * time.Second,
		Pause: pausing(t, s),
	})
}

// TestLocksAcrossProcesses kills and pauses real processes. It checks that the next holder
// is granted within the TTL, 5 %, 250 ms and the store's granularity.
func TestLocksAcrossProcesses(t *testing.T) {
	t.Parallel()
	s := servers.SharedEtcd(t, servers.EtcdNewest)
	multiproc.Run(t, multiproc.Store{Target: s.URL("prefix=procs/"), TTL: 2 * time.Second, Slack: etcdlock.Granularity + 500*time.Millisecond})
}
