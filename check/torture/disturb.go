package torture

import (
	"context"
	"sync"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivertest/faults"
)

// disturbed is a driver whose requests and pushes meet a plan of faults for a
// time.
type disturbed struct {
	driver.Driver

	mu    sync.Mutex
	moved func(string, driver.Place) // of Watch
	under *fault                     // nil when all is well
}

// fault is the time in which one plan counts. Requests and pushes have a driver
// each, so that the plan of requests does not meet the Watch of the pushes.
type fault struct {
	requests, pushes *faults.Driver
	push             func(string, driver.Place) // what comes goes in here
	calls            sync.WaitGroup             // under way
}

// onward is the driver behind a fault. It outlasts the fault.
type onward struct {
	driver.Driver
	f *fault
}

// Close keeps the driver open: only the fault is over.
func (onward) Close() error { return nil }

// Watch takes what pushes go through.
func (o onward) Watch(_ context.Context, moved func(string, driver.Place)) error {
	o.f.push = moved
	return nil
}

// begin lets a plan count from now on.
func (d *disturbed) begin(p faults.Plan) {
	f := &fault{}
	requests, pushes := faults.Plan{Seed: p.Seed}, faults.Plan{Seed: p.Seed}
	for _, r := range p.Rules {
		if r.On == faults.Push {
			pushes.Rules = append(pushes.Rules, r)
		} else {
			requests.Rules = append(requests.Rules, r)
		}
	}
	f.requests = faults.Wrap(onward{d.Driver, f}, requests)
	f.pushes = faults.Wrap(onward{d.Driver, f}, pushes)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.moved != nil {
		_ = f.pushes.Watch(context.Background(), d.moved) // that of onward has no error
	}
	d.under = f
}

// lift lets the plan count no more and returns the fault that it was, nil if
// there was none. The next may begin while what this one holds is on its way.
func (d *disturbed) lift() *fault {
	d.mu.Lock()
	defer d.mu.Unlock()
	f := d.under
	d.under = nil
	return f
}

// end returns when all that was on its way has arrived: how many requests and
// pushes the plan met. Nil has met none.
func (f *fault) end() (met int64) {
	if f == nil {
		return 0
	}
	f.calls.Wait()
	for _, w := range []*faults.Driver{f.requests, f.pushes} {
		_ = w.Close()
		for _, n := range w.Met() {
			met += int64(n)
		}
	}
	return met
}

// way is the driver that a request goes to now; done says that it is over.
func (d *disturbed) way() (to driver.Driver, done func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if f := d.under; f != nil {
		f.calls.Add(1)
		return f.requests, f.calls.Done
	}
	return d.Driver, func() {}
}

func (d *disturbed) Join(ctx context.Context, t *driver.Ticket, wait bool) (driver.Place, error) {
	to, done := d.way()
	defer done()
	return to.Join(ctx, t, wait)
}

func (d *disturbed) Renew(ctx context.Context, refs []driver.Ref) ([]driver.Place, error) {
	to, done := d.way()
	defer done()
	return to.Renew(ctx, refs)
}

func (d *disturbed) Leave(ctx context.Context, refs []driver.Ref) ([]driver.Place, error) {
	to, done := d.way()
	defer done()
	return to.Leave(ctx, refs)
}

// Watch is not disturbed itself: what it brings is.
func (d *disturbed) Watch(ctx context.Context, moved func(string, driver.Place)) error {
	d.mu.Lock()
	d.moved = moved
	d.mu.Unlock()
	return d.Driver.Watch(ctx, func(id string, p driver.Place) {
		d.mu.Lock()
		f := d.under
		if f != nil {
			f.calls.Add(1)
		}
		d.mu.Unlock()
		if f == nil {
			moved(id, p)
			return
		}
		defer f.calls.Done()
		if f.push == nil { // it began before anybody listened
			moved(id, p)
			return
		}
		f.push(id, p)
	})
}

// Close ends a fault and the driver.
func (d *disturbed) Close() error {
	d.lift().end()
	return d.Driver.Close()
}
