package zklock_test

import (
	"context"
	"flag"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivertest"
	"github.com/holdfast-go/holdfast/drivertest/procs"
	"github.com/holdfast-go/holdfast/internal/backends"
	"github.com/holdfast-go/holdfast/zklock"
)

func TestMain(m *testing.M) {
	procs.Child(func(target string) (driver.Driver, error) {
		return zklock.Open(context.Background(), target)
	})
	// They wait, for sessions to expire, more than they compute.
	flag.Parse()
	if err := flag.Set("test.parallel", "5"); err != nil {
		panic(err)
	}
	backends.Main(m)
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

func TestConformance(t *testing.T) {
	s := backends.SharedZooKeeper(t)
	url := s.URL("", "")
	m := s.Members[0]
	drivertest.Run(t, drivertest.Harness{
		Open: func(t drivertest.T) driver.Driver { return open(t, url) },
		TTL:  2 * time.Second,
		Pause: func(drivertest.T) func() {
			m.Pause(t)
			time.Sleep(50 * time.Millisecond) // until all its threads have stopped
			return func() { m.Resume(t) }
		},
		Restart: func(drivertest.T) { m.Restart(t) },
		Connections: func(drivertest.T) int {
			return strings.Count(m.Ask(t, "cons"), "127.0.0.1")
		},
	})
}
