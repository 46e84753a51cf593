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
	faults.Hooked

	mu      sync.Mutex
	current *fault // nil: no fault
}

// fault is the time in which one plan is in force.
type fault struct {
	*faults.Run
	calls sync.WaitGroup // requests and pushes under way
}

func newDisturbedDriver(d driver.Driver) *disturbedDriver {
	x := new(disturbedDriver)
	x.Hooked = faults.Hooked{Driver: d, OnRequest: x.request, OnPush: x.push}
	return x
}

// begin puts a plan into force.
func (d *disturbedDriver) begin(p faults.Plan) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.current = &fault{Run: p.Begin()}
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
	f.End()
	for _, n := range f.Applied() {
		met += int64(n)
	}
	return met
}

// meet returns the current fault, of which the caller says when its request or push is
// done. It returns nil if there is none.
func (d *disturbedDriver) meet() *fault {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.current != nil {
		d.current.calls.Add(1)
	}
	return d.current
}

// request sends a request by the current plan. Watch is not disturbed.
func (d *disturbedDriver) request(ctx context.Context, r *faults.Request) (any, error) {
	if r.Op == faults.Watch {
		return r.Send(ctx)
	}
	f := d.meet()
	if f == nil {
		return r.Send(ctx)
	}
	defer f.calls.Done()
	return f.Request(ctx, r)
}

func (d *disturbedDriver) push(id string, s driver.Status, notify func(string, driver.Status)) {
	f := d.meet()
	if f == nil {
		notify(id, s)
		return
	}
	defer f.calls.Done()
	f.Push(id, s, notify)
}

// Close ends a fault and the driver.
func (d *disturbedDriver) Close() error {
	d.lift().end()
	return d.Hooked.Close()
}
