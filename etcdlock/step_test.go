package etcdlock_test

import (
	"context"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/etcdlock"
	"github.com/holdfast-go/holdfast/internal/testkit/faultproxy"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
)

// TestEveryStepCut cuts every message of every request.
//
// Covers: F1, F2, F75.
func TestEveryStepCut(t *testing.T) {
	t.Parallel()
	s := servers.SharedEtcd(t, servers.EtcdNewest)
	faultproxy.EveryStep(t, faultproxy.Subject{Target: s.Members[0].Addr(), TTL: time.Minute, Open: func(t testing.TB, addr string) driver.Driver {
		d, err := etcdlock.Open(t.Context(), "etcd://"+addr+"?prefix=cut")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = d.Close() })
		return d
	}})
}

// TestF115_HalfOpen checks that connections that fall silent lose no hold.
//
// Covers: F115 on etcd.
func TestF115_HalfOpen(t *testing.T) {
	t.Parallel()
	s := servers.SharedEtcd(t, servers.EtcdNewest)
	faultproxy.HalfOpen(t, faultproxy.Subject{Target: s.Members[0].Addr(), Open: func(t testing.TB, addr string) driver.Driver {
		d, err := etcdlock.Open(t.Context(), "etcd://"+addr+"?prefix=half")
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
// Covers: F123 on etcd.
func TestF123_SilentWhileOpened(t *testing.T) {
	t.Parallel()
	s := servers.SharedEtcd(t, servers.EtcdNewest)
	faultproxy.Opening(t, faultproxy.Subject{Target: s.Members[0].Addr()}, 2, func(ctx context.Context, addr string) (driver.Driver, error) {
		d, err := etcdlock.Open(ctx, "etcd://"+addr+"?prefix=opening")
		if err != nil {
			return nil, err
		}
		return d, nil
	})
}
