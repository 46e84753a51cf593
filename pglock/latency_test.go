package pglock

import (
	"fmt"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testkit/faultproxy"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
	"github.com/holdfast-go/holdfast/internal/testkit/sqlcases"
)

// TestF121_DistantClientKeepsPlaces checks that a client far from its server
// keeps many places of each kind.
func TestF121_DistantClientKeepsPlaces(t *testing.T) {
	t.Parallel()
	prefix := own()
	faultproxy.Latency(t, faultproxy.Distant{
		Targets: []string{fmt.Sprintf("127.0.0.1:%d", servers.SharedPostgres(t).Port)}, Many: sqlcases.PlaceCount(),
		Open: func(t testing.TB, addrs []string) driver.Driver {
			return openOn(t, fmt.Sprintf("postgres://postgres@%s/postgres?sslmode=disable&pool_max_conns=4&%s", addrs[0], prefix))
		},
	})
}
