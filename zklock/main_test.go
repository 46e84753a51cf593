package zklock_test

import (
	"context"
	"flag"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivertest"
	"github.com/holdfast-go/holdfast/internal/testkit/multiproc"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
	"github.com/holdfast-go/holdfast/zklock"
)

func TestMain(m *testing.M) {
	multiproc.Child(func(target string) (driver.Driver, error) {
		return zklock.Open(context.Background(), target)
	})
	// The tests wait for sessions to expire more than they compute.
	flag.Parse()
	if err := flag.Set("test.parallel", "5"); err != nil {
		panic(err)
	}
	servers.Main(m)
}

// open opens a driver; the caller closes it.
func open(t drivertest.T, url string) *zklock.Driver {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	d, err := zklock.Open(ctx, url)
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	return d
}

// pausing returns a function that stops a server; the result of that function
// lets the server go on.
func pausing(t *testing.T, m *servers.ZooKeeperMember) func(drivertest.T) func() {
	return func(drivertest.T) func() {
		m.Pause(t)
		return func() { m.Resume(t) }
	}
}

func TestDriverConformance(t *testing.T) {
	s := servers.SharedZooKeeper(t)
	url := s.URL("", "")
	m := s.Members[0]
	drivertest.Run(t, drivertest.Harness{
		Open: func(t drivertest.T) driver.Driver { return open(t, url) },
		OpenAt: func(ctx context.Context, address string) (driver.Driver, error) {
			return zklock.Open(ctx, "zk://"+address)
		},
		TTL:     2 * time.Second,
		Pause:   pausing(t, m),
		Restart: func(drivertest.T) { m.Restart(t) },
		Foreign: foreigners(s.Addrs()),
		Connections: func(drivertest.T) int {
			return strings.Count(m.Ask(t, "cons"), "127.0.0.1")
		},
	})
}
