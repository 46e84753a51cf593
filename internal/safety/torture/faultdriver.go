package torture

import (
	"context"
	"sync"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testkit/faults"
)

// disturbedDriver is a driver whose requests and pushes meet a plan of faults
// for a time.
type disturbedDriver struct {
	driver.Driver

	mu      sync.Mutex
	moved   func(string, driver.Status) // the function given to Watch
	current *fault                      // nil: no fault
}

// fault is the time in which one plan is in force. Requests and pushes have
// separate drivers, so that the plan of requests does not affect the Watch of
// the pushes.
type fault struct {
	requests, pushes *faults.Driver
	push             func(string, driver.Status) // receives the pushes of the store
	calls            sync.WaitGroup              // requests and pushes under way
}

// keptOpen is the driver behind a fault. It outlasts the fault.
type keptOpen struct {
	driver.Driver
	f *fault
}

// Close keeps the driver open: only the fault is over.
func (keptOpen) Close() error { return nil }

// Watch keeps notify as the receiver of the store's pushes.
func (o keptOpen) Watch(_ context.Context, notify func(string, driver.Status)) error {
	o.f.push = notify
	return nil
}

// begin puts a plan into force.
func (d *disturbedDriver) begin(p faults.Plan) {
	f := &fault{}
	requests, pushes := faults.Plan{Seed: p.Seed}, faults.Plan{Seed: p.Seed}
	for _, r := range p.Rules {
		if r.On == faults.Push {
			pushes.Rules = append(pushes.Rules, r)
		} else {
			requests.Rules = append(requests.Rules, r)
		}
	}
	f.requests = faults.Wrap(keptOpen{d.Driver, f}, requests)
	f.pushes = faults.Wrap(keptOpen{d.Driver, f}, pushes)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.moved != nil {
		_ = f.pushes.Watch(context.Background(), d.moved) // keptOpen.Watch returns no error
	}
	d.current = f
}

// lift ends the current plan and returns its fault, nil if there was none. The
// next plan may begin while requests that this one holds are still on their
// way.
func (d *disturbedDriver) lift() *fault {
	d.mu.Lock()
	defer d.mu.Unlock()
	f := d.current
	d.current = nil
	return f
}

// end waits until every request and push on its way has arrived, and returns
// the number that met a fault. A nil fault has met none.
func (f *fault) end() (met int64) {
	if f == nil {
		return 0
	}
	f.calls.Wait()
	for _, w := range []*faults.Driver{f.requests, f.pushes} {
		_ = w.Close()
		for _, n := range w.Applied() {
			met += int64(n)
		}
	}
	return met
}

// currentDriver returns the driver for a request, and a function to call when
// the request is done.
func (d *disturbedDriver) currentDriver() (to driver.Driver, done func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if f := d.current; f != nil {
		f.calls.Add(1)
		return f.requests, f.calls.Done
	}
	return d.Driver, func() {}
}

func (d *disturbedDriver) Join(ctx context.Context, t *driver.Ticket, wait bool) (driver.Status, error) {
	to, done := d.currentDriver()
	defer done()
	return to.Join(ctx, t, wait)
}

func (d *disturbedDriver) Renew(ctx context.Context, refs []driver.Ref) ([]driver.Status, error) {
	to, done := d.currentDriver()
	defer done()
	return to.Renew(ctx, refs)
}

func (d *disturbedDriver) Leave(ctx context.Context, refs []driver.Ref) ([]driver.Status, error) {
	to, done := d.currentDriver()
	defer done()
	return to.Leave(ctx, refs)
}

func (d *disturbedDriver) Inspect(ctx context.Context, name string) (driver.Queue, error) {
	to, done := d.currentDriver()
	defer done()
	return to.Inspect(ctx, name)
}

// Watch is not disturbed itself, but its pushes are.
func (d *disturbedDriver) Watch(ctx context.Context, notify func(string, driver.Status)) error {
	d.mu.Lock()
	d.moved = notify
	d.mu.Unlock()
	return d.Driver.Watch(ctx, func(id string, p driver.Status) {
		d.mu.Lock()
		f := d.current
		if f != nil {
			f.calls.Add(1)
		}
		d.mu.Unlock()
		if f == nil {
			notify(id, p)
			return
		}
		defer f.calls.Done()
		if f.push == nil { // the fault began before Watch
			notify(id, p)
			return
		}
		f.push(id, p)
	})
}

// Close ends a fault and the driver.
func (d *disturbedDriver) Close() error {
	d.lift().end()
	return d.Driver.Close()
}
