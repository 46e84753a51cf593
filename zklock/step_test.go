package zklock_test

import (
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivertest/cuts"
	"github.com/holdfast-go/holdfast/internal/backends"
	"github.com/holdfast-go/holdfast/zklock"
)

// Every message of every request is cut.
//
// Covers: F1, F2, F82, F88.
func TestEveryStepCut(t *testing.T) {
	t.Parallel()
	s := backends.SharedZooKeeper(t)
	cuts.EveryStep(t, cuts.Subject{Target: s.Members[0].Addr(), TTL: 4 * time.Second, Open: func(t testing.TB, addr string) driver.Driver {
		d, err := zklock.Open(t.Context(), "zk://"+addr+"?root=/cut&tick="+(2*s.Tick).String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = d.Close() })
		return d
	}})
}
