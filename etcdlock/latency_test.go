package etcdlock_test

import (
	"testing"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/etcdlock"
	"github.com/holdfast-go/holdfast/internal/testkit/faultproxy"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
)

// TestF121_DistantClientKeepsPlaces checks that a client far from its members keeps many places
// of each kind.
func TestF121_DistantClientKeepsPlaces(t *testing.T) {
	t.Parallel()
	s := servers.SharedEtcd(t, servers.EtcdNewest)
	faultproxy.Latency(t, faultproxy.Distant{
		Targets: []string{s.Members[0].Addr()},
		Open: func(t testing.TB, addrs []string) driver.Driver {
			d, err := etcdlock.Open(t.Context(), "etcd://"+addrs[0]+"?prefix=far")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = d.Close() })
			return d
		},
	})
}
