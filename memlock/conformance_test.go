package memlock_test

import (
	"context"
	"iter"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivertest"
	"github.com/holdfast-go/holdfast/memlock"
)

func TestDriverConformance(t *testing.T) {
	drivertest.RunBubbles(t, func(t drivertest.T) drivertest.Harness {
		s := memlock.NewStore()
		s.StepClock(30 * 365 * 24 * time.Hour) // bubbles begin in 2000, tokens in 2025
		g := new(gate)
		return drivertest.Harness{
			TellsLeft: true,
			Open:      func(drivertest.T) driver.Driver { return gated{memlock.New(s), g} },
			TTL:       30 * time.Second,
			Pause:     func(drivertest.T) func() { return g.shut() },
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
	s, g := memlock.NewStore(), new(gate)
	drivertest.RunLocks(t, drivertest.Harness{
		Open:  func(drivertest.T) driver.Driver { return gated{memlock.New(s), g} },
		TTL:   2 * time.Second, // a busy machine can renew its leases in time
		Pause: func(drivertest.T) func() { return g.shut() },
	})
}

// gate stands between drivers and their store; while the gate is shut, requests
// wait before it.
type gate struct {
	mu   sync.Mutex
	open chan struct{} // nil while open
}

func (g *gate) shut() (open func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	ch := make(chan struct{})
	g.open = ch
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.open = nil
		close(ch)
	}
}

func (g *gate) pass(ctx context.Context) error {
	g.mu.Lock()
	ch := g.open
	g.mu.Unlock()
	if ch == nil {
		return nil
	}
	select {
	case <-ch:
		return nil
	case <-ctx.Done():
		return driver.Wrap(driver.Unknown, context.Cause(ctx))
	}
}

type gated struct {
	*memlock.Driver
	g *gate
}

func (d gated) Join(ctx context.Context, t *driver.Ticket, wait bool) (driver.Status, error) {
	if err := d.g.pass(ctx); err != nil {
		return driver.Status{}, err
	}
	return d.Driver.Join(ctx, t, wait)
}

func (d gated) Renew(ctx context.Context, refs []driver.Ref) ([]driver.Status, error) {
	if err := d.g.pass(ctx); err != nil {
		return nil, err
	}
	return d.Driver.Renew(ctx, refs)
}

func (d gated) Leave(ctx context.Context, refs []driver.Ref) ([]driver.Status, error) {
	if err := d.g.pass(ctx); err != nil {
		return nil, err
	}
	return d.Driver.Leave(ctx, refs)
}

func (d gated) Inspect(ctx context.Context, name string) (driver.Queue, error) {
	if err := d.g.pass(ctx); err != nil {
		return driver.Queue{}, err
	}
	return d.Driver.Inspect(ctx, name)
}

func (d gated) Names(ctx context.Context, prefix string) iter.Seq2[string, error] {
	if err := d.g.pass(ctx); err != nil {
		return func(yield func(string, error) bool) { yield("", err) }
	}
	return d.Driver.Names(ctx, prefix)
}
