package locktest_test

import (
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivertest"
	"github.com/holdfast-go/holdfast/drivertest/locktest"
	"github.com/holdfast-go/holdfast/memlock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestMemory(t *testing.T) {
	s := memlock.NewStore()
	locktest.Run(t, drivertest.Harness{
		Open: func(drivertest.T) driver.Driver { return memlock.New(s) },
		TTL:  500 * time.Millisecond,
	})
}
