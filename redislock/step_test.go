package redislock

import (
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivertest/cuts"
	"github.com/holdfast-go/holdfast/internal/backends"
)

// Every message of every request is cut.
//
// Covers: F1, F2, F4.
func TestEveryStepCut(t *testing.T) {
	t.Parallel()
	s := backends.SharedRedis(t)
	cuts.EveryStep(t, cuts.Subject{Target: s.Addr(), TTL: time.Minute, Open: func(t testing.TB, addr string) driver.Driver {
		d, err := Open(t.Context(), "redis://"+addr+"?prefix=cut")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = d.Close() })
		return d
	}})
}
