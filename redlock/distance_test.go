package redlock

import (
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testkit/faultproxy"
)

// TestF121_DistantNodesKeepManyPlaces checks that a client far from all three
// nodes keeps many places of each kind.
func TestF121_DistantNodesKeepManyPlaces(t *testing.T) {
	t.Parallel()
	ss := start(t, 3)
	targets := []string{ss[0].Addr(), ss[1].Addr(), ss[2].Addr()}
	faultproxy.Latency(t, faultproxy.Distant{
		Targets: targets,
		Open: func(t testing.TB, addrs []string) driver.Driver {
			url := ss.target("prefix=far")
			for i := range targets {
				url = strings.Replace(url, targets[i], addrs[i], 1)
			}
			d, err := openTarget(url)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = d.Close() })
			return d
		},
	})
}
