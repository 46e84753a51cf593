package zklock_test

import (
	"context"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testkit/faultproxy"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
	"github.com/holdfast-go/holdfast/zklock"
)

// TestEveryStepCut cuts every message of every request.
//
// Covers: F1, F2, F82, F88.
func TestEveryStepCut(t *testing.T) {
	t.Parallel()
	s := servers.SharedZooKeeper(t)
	faultproxy.EveryStep(t, faultproxy.Subject{Target: s.Members[0].Addr(), TTL: 4 * time.Second, Open: func(t testing.TB, addr string) driver.Driver {
		d, err := zklock.Open(t.Context(), "zk://"+addr+"?root=/cut&tick="+(2*s.Tick).String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = d.Close() })
		return d
	}})
}

// TestF115_HalfOpen checks that connections that fall silent lose no hold.
//
// Covers: F115 on zookeeper.
func TestF115_HalfOpen(t *testing.T) {
	t.Parallel()
	s := servers.SharedZooKeeper(t)
	faultproxy.HalfOpen(t, faultproxy.Subject{Target: s.Members[0].Addr(), Open: func(t testing.TB, addr string) driver.Driver {
		d, err := zklock.Open(t.Context(), "zk://"+addr+"?root=/half&tick="+(2*s.Tick).String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = d.Close() })
		return d
	}}, 2*time.Second, 5*time.Second)
}

// TestF123_SilentWhileOpened checks that Open ends in time when the server falls
// silent after any of its answers.
//
// Covers: F123 on zookeeper.
func TestF123_SilentWhileOpened(t *testing.T) {
	t.Parallel()
	s := servers.SharedZooKeeper(t)
	faultproxy.Opening(t, faultproxy.Subject{Target: s.Members[0].Addr()}, 4, func(ctx context.Context, addr string) (driver.Driver, error) {
		d, err := zklock.Open(ctx, "zk://"+addr+"?root=/opening&tick="+(2*s.Tick).String())
		if err != nil {
			return nil, err
		}
		return d, nil
	})
}
