package redlock

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

// A world is some stores in memory, on which clients open their drivers.
type world struct {
	stores []*memlock.Store
	gates  []*gate
}

func newWorld(n int) *world {
	w := new(world)
	for range n {
		s := memlock.NewStore()
		s.StepClock(30 * 365 * 24 * time.Hour) // bubbles begin in 2000, tokens in 2025
		w.stores = append(w.stores, s)
		w.gates = append(w.gates, new(gate))
	}
	return w
}

// nodes are a client's drivers of the stores.
func (w *world) nodes() []driver.Driver {
	var ds []driver.Driver
	for i, s := range w.stores {
		ds = append(ds, gated{memlock.New(s), w.gates[i], new(gate)})
	}
	return ds
}

func (w *world) open(t drivertest.T) *Driver {
	t.Helper()
	d, err := New(w.nodes(), nil)
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	return d
}

func (w *world) harness() drivertest.Harness {
	return drivertest.Harness{
		Open: func(t drivertest.T) driver.Driver { return w.open(t) },
		TTL:  30 * time.Second,
		Pause: func(drivertest.T) func() {
			for _, g := range w.gates {
				g.shut()
			}
			return func() {
				for _, g := range w.gates {
					g.reopen()
				}
			}
		},
		LoseData: func(drivertest.T) {
			for _, s := range w.stores {
				s.LoseData()
			}
		},
		Snapshot: func(drivertest.T) func() {
			var restore []func()
			for _, s := range w.stores {
				restore = append(restore, s.Snapshot())
			}
			return func() {
				for _, r := range restore {
					r()
				}
			}
		},
		StepClock: func(_ drivertest.T, d time.Duration) {
			for _, s := range w.stores {
				s.StepClock(d)
			}
		},
	}
}

func TestConformance(t *testing.T) {
	for _, n := range []int{3, 5, 7} {
		t.Run(string(rune('0'+n)), func(t *testing.T) {
			drivertest.RunBubbles(t, func(drivertest.T) drivertest.Harness { return newWorld(n).harness() })
		})
	}
}

// A gate stands before a store; while it is shut, requests wait there.
type gate struct {
	mu   sync.Mutex
	open chan struct{} // nil while open
}

func (g *gate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.open == nil {
		g.open = make(chan struct{})
	}
}

func (g *gate) reopen() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.open != nil {
		close(g.open)
		g.open = nil
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

// gated is a client's driver of one store; own is the gate of this client
// alone, the other one that of the store.
type gated struct {
	*memlock.Driver
	all, own *gate
}

func (d gated) pass(ctx context.Context) error {
	if err := d.all.pass(ctx); err != nil {
		return err
	}
	return d.own.pass(ctx)
}

func (d gated) Join(ctx context.Context, t *driver.Ticket, wait bool) (driver.Place, error) {
	if err := d.pass(ctx); err != nil {
		return driver.Place{}, err
	}
	return d.Driver.Join(ctx, t, wait)
}

func (d gated) Renew(ctx context.Context, refs []driver.Ref) ([]driver.Place, error) {
	if err := d.pass(ctx); err != nil {
		return nil, err
	}
	return d.Driver.Renew(ctx, refs)
}

func (d gated) Leave(ctx context.Context, refs []driver.Ref) ([]driver.Place, error) {
	if err := d.pass(ctx); err != nil {
		return nil, err
	}
	return d.Driver.Leave(ctx, refs)
}

func (d gated) Inspect(ctx context.Context, name string) (driver.Line, error) {
	if err := d.pass(ctx); err != nil {
		return driver.Line{}, err
	}
	return d.Driver.Inspect(ctx, name)
}

func (d gated) Identity(ctx context.Context) (string, error) {
	if err := d.pass(ctx); err != nil {
		return "", err
	}
	return d.Driver.Identity(ctx)
}

func (d gated) Names(ctx context.Context, prefix string) iter.Seq2[string, error] {
	if err := d.pass(ctx); err != nil {
		return func(yield func(string, error) bool) { yield("", err) }
	}
	return d.Driver.Names(ctx, prefix)
}
