package natslock_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivertest"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
	"github.com/holdfast-go/holdfast/natslock"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// TestDriverConformance runs the suite on one server, which the cases also stop,
// empty and bring back from a copy.
func TestDriverConformance(t *testing.T) {
	s := servers.StartNATS(t, "")
	drivertest.Run(t, drivertest.Harness{
		Open:      func(t drivertest.T) driver.Driver { return open(t, s, natslock.Options{}) },
		TTL:       2 * time.Second,
		TellsLeft: true,
		Waiters:   300, // each one's request writes the record of all
		Pause: func(drivertest.T) func() {
			s.Pause(t)
			return func() { s.Resume(t) }
		},
		Restart: func(drivertest.T) {
			s.Kill()
			s.Start(t)
		},
		LoseData: func(drivertest.T) {
			s.Kill()
			must(t, os.RemoveAll(s.Data()))
			s.Start(t)
		},
		Snapshot: func(drivertest.T) func() {
			copied := filepath.Join(t.TempDir(), "copy")
			s.Process.Stop()
			must(t, os.CopyFS(copied, os.DirFS(s.Data())))
			s.Start(t)
			return func() {
				s.Process.Stop()
				must(t, os.RemoveAll(s.Data()))
				must(t, os.CopyFS(s.Data(), os.DirFS(copied)))
				s.Start(t)
			}
		},
		OpenAt: func(ctx context.Context, address string) (driver.Driver, error) {
			d, err := natslock.OpenURL(ctx, "nats://"+address)
			if err != nil {
				return nil, err
			}
			return d, nil
		},
	})
}

// TestLocks runs the suite of locks, through the core, on a server.
func TestLocks(t *testing.T) {
	s := servers.StartNATS(t, "")
	drivertest.RunLocks(t, drivertest.Harness{
		Open: func(t drivertest.T) driver.Driver { return open(t, s, natslock.Options{}) },
		TTL:  4 * time.Second, // a busy machine can renew its leases in time
		Pause: func(drivertest.T) func() {
			s.Pause(t)
			return func() { s.Resume(t) }
		},
	})
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func open(t drivertest.T, s *servers.NATS, o natslock.Options) *natslock.Driver {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for {
		d, err := natslock.Open(ctx, []string{s.URL()}, o)
		if err == nil {
			return d
		}
		if driver.ClassOf(err) != driver.Unavailable || ctx.Err() != nil {
			t.Fatalf("open: %v", err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// bucket returns a bucket of locks as other programs see it.
func bucket(t drivertest.T, s *servers.NATS, name string) (jetstream.KeyValue, context.Context) {
	t.Helper()
	nc, err := nats.Connect(s.URL())
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(func() {
		cancel()
		nc.Close()
	})
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatalf("JetStream: %v", err)
	}
	kv, err := js.KeyValue(ctx, name)
	if err != nil {
		t.Fatalf("bucket: %v", err)
	}
	return kv, ctx
}

// plain encodes names as the page of the store says.
var plain = driver.Charset{
	Plain: func(b byte) bool {
		return b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b >= '0' && b <= '9' || b == '-' || b == '_'
	},
	Max: 200,
}
