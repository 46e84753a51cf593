package mysqllock

import (
	"fmt"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testkit/faultproxy"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
	"github.com/holdfast-go/holdfast/internal/testkit/sqlcases"
)

// TestF121_DistantClientKeepsPlaces checks that a client far from its server
// keeps many places of each kind, on the driver's own connections and on those
// of a pool with the library's defaults.
func TestF121_DistantClientKeepsPlaces(t *testing.T) {
	for _, whose := range []string{"own", "pool"} {
		t.Run(whose, func(t *testing.T) {
			t.Parallel()
			prefix := own()
			// Each statement of such a pool is a round trip.
			trips, trip := 0, time.Duration(0)
			if whose == "pool" {
				trips, trip = 24, 8*time.Millisecond
			}
			faultproxy.Latency(t, faultproxy.Distant{
				Trips: trips, Trip: trip,
				Targets: []string{fmt.Sprintf("127.0.0.1:%d", servers.SharedMariaDB(t).Port)}, Many: sqlcases.PlaceCount(),
				Open: func(t testing.TB, addrs []string) driver.Driver {
					url := fmt.Sprintf("mysql://holdfast:%s@%s/locks?max_conns=4&%s", "s3cret%2Fpass", addrs[0], prefix)
					if whose == "own" {
						return openOn(t, url)
					}
					db := poolOf(t, url, func(c *mysql.Config) { c.InterpolateParams = true })
					db.SetMaxOpenConns(4)
					d, err := New(db, &Options{TablePrefix: prefixOf(url)})
					if err != nil {
						t.Fatal(err)
					}
					t.Cleanup(func() { _ = d.Close() })
					return d
				},
			})
		})
	}
}
