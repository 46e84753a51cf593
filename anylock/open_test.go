package anylock

import (
	"context"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivertest"
	"github.com/holdfast-go/holdfast/memlock"
)

// TestF123_RedLockOpenEnds: a majority of the servers accepts connections and does
// not answer, or speaks another protocol. RedLock is opened from URLs here and not
// in its package.
//
// Covers: F123 on redlock.
func TestF123_RedLockOpenEnds(t *testing.T) {
	s := memlock.NewStore()
	h := drivertest.Harness{
		Open: func(drivertest.T) driver.Driver { return memlock.New(s) },
		OpenAt: func(ctx context.Context, address string) (driver.Driver, error) {
			_, port, _ := strings.Cut(address, ":")
			// Three names of one machine.
			return OpenDriver(ctx, "redlock://"+address+",localhost:"+port+",[::ffff:127.0.0.1]:"+port)
		},
	}
	for _, c := range drivertest.Cases() {
		if c.Needs&drivertest.OpenAt != 0 {
			t.Run(c.Name, func(t *testing.T) {
				t.Parallel()
				drivertest.RunCase(t, h, c)
			})
		}
	}
}
