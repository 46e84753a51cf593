package redislock

import (
	"testing"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testkit/faultproxy"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
)

// TestF121_DistantServerKeepsManyPlaces checks that a client far from its
// server keeps many places of each kind.
func TestF121_DistantServerKeepsManyPlaces(t *testing.T) {
	t.Parallel()
	faultproxy.Latency(t, faultproxy.Distant{
		Targets: []string{servers.SharedRedis(t).Addr()},
		Open: func(t testing.TB, addrs []string) driver.Driver {
			d, err := Open(t.Context(), "redis://"+addrs[0]+"?prefix=far")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = d.Close() })
			return d
		},
	})
}
