package zklock_test

import (
	"testing"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testkit/faultproxy"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
	"github.com/holdfast-go/holdfast/zklock"
)

// TestF121_DistantClientKeepsPlaces checks that a client far from its server keeps many places
// of each kind.
func TestF121_DistantClientKeepsPlaces(t *testing.T) {
	t.Parallel()
	s := servers.SharedZooKeeper(t)
	faultproxy.Latency(t, faultproxy.Distant{
		Targets: []string{s.Members[0].Addr()},
		Open: func(t testing.TB, addrs []string) driver.Driver {
			d, err := zklock.Open(t.Context(), "zk://"+addrs[0]+"?root=/far&tick="+(2*s.Tick).String())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = d.Close() })
			return d
		},
	})
}
