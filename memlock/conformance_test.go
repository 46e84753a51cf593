package memlock_test

import (
	"context"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivertest"
	"github.com/holdfast-go/holdfast/internal/testkit/faults"
	"github.com/holdfast-go/holdfast/memlock"
)

func TestDriverConformance(t *testing.T) {
	drivertest.RunBubbles(t, func(t drivertest.T) drivertest.Harness {
		s := memlock.NewStore()
		s.StepClock(30 * 365 * 24 * time.Hour) // bubbles begin in 2000, tokens in 2025
		g := new(faults.Gate)
		return drivertest.Harness{
			TellsLeft: true,
			Open:      func(drivertest.T) driver.Driver { return gated(s, g) },
			TTL:       30 * time.Second,
			Pause:     func(drivertest.T) func() { return g.Shut() },
			LoseData:  func(drivertest.T) { s.LoseData() },
			Snapshot:  func(drivertest.T) func() { return s.Snapshot() },
			StepClock: func(_ drivertest.T, d time.Duration) { s.StepClock(d) },
		}
	})
}

// TestConformanceInRealTime runs the suite in real time, with goroutines that
// really wait for each other.
func TestConformanceInRealTime(t *testing.T) {
	s := memlock.NewStore()
	drivertest.Run(t, drivertest.Harness{
		TellsLeft: true,
		Open:      func(drivertest.T) driver.Driver { return memlock.New(s) },
		TTL:       500 * time.Millisecond,
		// The request itself drops expired tickets: nothing is ever late.
		Slack: 100 * time.Millisecond,
	})
}

// TestLocks runs the suite of locks, through the core, on the store.
func TestLocks(t *testing.T) {
	s, g := memlock.NewStore(), new(faults.Gate)
	drivertest.RunLocks(t, drivertest.Harness{
		Open:  func(drivertest.T) driver.Driver { return gated(s, g) },
		TTL:   2 * time.Second, // a busy machine can renew its leases in time
		Pause: func(drivertest.T) func() { return g.Shut() },
	})
}

// gated returns a driver whose requests wait before the store while the gate is shut.
func gated(s *memlock.Store, g *faults.Gate) driver.Driver {
	return faults.Passing(memlock.New(s), func(ctx context.Context, _ *faults.Request) error { return g.Pass(ctx) })
}
