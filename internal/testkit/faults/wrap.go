package faults

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// Driver is a driver with a plan of faults before it.
type Driver struct {
	d     driver.Driver
	plan  Plan
	start time.Time

	ctx    context.Context // ends with Close, which delivers what is held
	cancel context.CancelFunc
	held   sync.WaitGroup // requests and pushes that are still on their way

	mu       sync.Mutex
	closed   bool
	healed   bool
	count    [ops]int
	inFlight int   // requests that crowd
	applied  []int // requests, by rule
	log      []string
	swap     func() // the push that waits for the next one
}

var (
	_ driver.Driver     = (*Driver)(nil)
	_ driver.Identifier = (*Driver)(nil)
	_ driver.Checker    = (*Driver)(nil)
)

// ErrLost is in the error of every request whose outcome its caller does not
// learn.
var ErrLost = errors.New("lost on the way, as planned")

// Wrap puts a plan before a driver. It panics when a rule of the plan cannot
// happen to what it is for.
func Wrap(d driver.Driver, p Plan) *Driver {
	for _, r := range p.Rules {
		if err := r.check(); err != nil {
			panic("faults: " + err.Error())
		}
	}
	f := &Driver{d: d, plan: p, start: time.Now(), applied: make([]int, len(p.Rules))}
	f.ctx, f.cancel = context.WithCancel(context.Background())
	return f
}

// Log returns the faults so far, one line each.
func (f *Driver) Log() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]string(nil), f.log...)
}

// Applied returns the number of requests that each rule of the plan applied to
// so far.
func (f *Driver) Applied() []int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]int(nil), f.applied...)
}

// Heal ends the plan: from now on requests and pushes are sent unchanged. Those that it holds
// arrive when their time is over.
func (f *Driver) Heal() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.healed = true
}

// next counts a request and returns the rule that decides about it, or nil.
func (f *Driver) next(op Op, what string) *Rule {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.count[op]++
	if f.healed {
		return nil
	}
	for i := range f.plan.Rules {
		if f.plan.applies(i, op, f.count[op], time.Since(f.start)) {
			f.applied[i]++
			f.log = append(f.log, fmt.Sprintf("%v %d %s: %v", op, f.count[op], what, f.plan.Rules[i]))
			return &f.plan.Rules[i]
		}
	}
	return nil
}

// call sends one request by the plan. A request that is held is what later
// returns: it must not share anything that the caller may change, for it may
// be carried out when the caller has given up long ago. Nil means send.
func call[A any](f *Driver, ctx context.Context, op Op, what string, send sender[A], later func() sender[A]) (A, error) {
	var none A
	f.mu.Lock()
	closed := f.closed
	f.mu.Unlock()
	if closed {
		return none, driver.ErrClosed
	}
	if err := driver.Before(ctx); err != nil {
		return none, err
	}
	r := f.next(op, what)
	if r == nil {
		return send(ctx)
	}
	do := r.Do
	if op == Watch && do != Refuse && do != NotReady {
		f.sleep(ctx, r.For)
		if held := do == HoldRequest || do == HoldAnswer; held && ctx.Err() == nil {
			return send(ctx)
		}
		return none, lostError(ctx)
	}
	switch do {
	case CutRequest:
		f.sleep(ctx, r.For)
		return none, lostError(ctx)
	case LoseAnswer:
		_, _ = send(context.WithoutCancel(ctx))
		f.sleep(ctx, r.For)
		return none, lostError(ctx)
	case HoldRequest:
		type result struct {
			answer A
			err    error
		}
		done := make(chan result, 1)
		if later != nil {
			send = later()
		}
		if !f.inBackground(func() {
			f.sleep(f.ctx, r.For)
			a, err := send(context.WithoutCancel(ctx))
			done <- result{a, err}
		}) {
			return none, driver.ErrClosed
		}
		select {
		case res := <-done:
			return res.answer, res.err
		case <-ctx.Done():
			return none, lostError(ctx)
		}
	case HoldAnswer:
		a, err := send(ctx)
		f.sleep(ctx, r.For)
		if ctx.Err() != nil {
			return none, lostError(ctx)
		}
		return a, err
	case Overload:
		f.mu.Lock()
		f.inFlight++
		n := f.inFlight
		f.mu.Unlock()
		a, err := send(ctx)
		f.sleep(ctx, time.Duration(n)*r.For)
		f.mu.Lock()
		f.inFlight--
		f.mu.Unlock()
		if ctx.Err() != nil {
			return none, lostError(ctx)
		}
		return a, err
	case NotReady:
		return none, driver.NotReady(r.For, "not ready, as planned")
	case Double:
		_, first := send(ctx)
		a, err := send(ctx)
		if isSurelyNotDone(err) && !isSurelyNotDone(first) {
			return none, lostError(ctx)
		}
		return a, err
	default:
		return none, &driver.Error{Class: driver.Unavailable, Err: errors.New("unavailable, as planned")}
	}
}

// isSurelyNotDone reports whether a request failed with an error that says so.
func isSurelyNotDone(err error) bool {
	class := driver.ClassOf(err)
	return err != nil && (class == driver.NotDone || class == driver.Unavailable)
}

type sender[A any] = func(context.Context) (A, error)

// inBackground does something that Close waits for, unless it is too late for that.
func (f *Driver) inBackground(do func()) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.closed {
		f.held.Go(do)
	}
	return !f.closed
}

// sleep sleeps until d is over, ctx ends, or the driver is closed.
func (f *Driver) sleep(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	case <-f.ctx.Done():
	}
}

func lostError(ctx context.Context) error {
	if ctx.Err() != nil {
		return &driver.Error{Class: driver.Unknown, Err: errors.Join(ErrLost, context.Cause(ctx))}
	}
	return &driver.Error{Class: driver.Unknown, Err: ErrLost}
}

func ids(refs []driver.Ref) string {
	switch len(refs) {
	case 0:
		return "of nobody"
	case 1:
		return "of " + refs[0].ID
	}
	return fmt.Sprintf("of %s and %d more", refs[0].ID, len(refs)-1)
}

// Traits implements [driver.Driver].
func (f *Driver) Traits() driver.Traits { return f.d.Traits() }

// Join implements [driver.Driver].
func (f *Driver) Join(ctx context.Context, t *driver.Ticket, wait bool) (driver.Status, error) {
	type joined struct {
		p   driver.Status
		aux any
	}
	a, err := call(f, ctx, Join, "of "+t.ID, func(ctx context.Context) (joined, error) {
		p, err := f.d.Join(ctx, t, wait)
		return joined{p: p}, err
	}, func() sender[joined] {
		c := *t
		return func(ctx context.Context) (joined, error) {
			p, err := f.d.Join(ctx, &c, wait)
			return joined{p, c.DriverData}, err
		}
	})
	if a.aux != nil {
		t.DriverData = a.aux
	}
	return a.p, err
}

// Renew implements [driver.Driver].
func (f *Driver) Renew(ctx context.Context, refs []driver.Ref) ([]driver.Status, error) {
	return f.batch(ctx, Renew, refs, f.d.Renew)
}

// Leave implements [driver.Driver].
func (f *Driver) Leave(ctx context.Context, refs []driver.Ref) ([]driver.Status, error) {
	return f.batch(ctx, Leave, refs, f.d.Leave)
}

func (f *Driver) batch(ctx context.Context, op Op, refs []driver.Ref, send func(context.Context, []driver.Ref) ([]driver.Status, error)) ([]driver.Status, error) {
	return call(f, ctx, op, ids(refs), func(ctx context.Context) ([]driver.Status, error) {
		return send(ctx, refs)
	}, func() sender[[]driver.Status] {
		copies := append([]driver.Ref(nil), refs...)
		for i := range copies {
			t := *copies[i].Ticket
			copies[i].Ticket = &t
		}
		return func(ctx context.Context) ([]driver.Status, error) { return send(ctx, copies) }
	})
}

// Watch implements [driver.Driver]. It is never carried out twice, nor when its
// caller is told that it failed: what would do that cuts the request.
func (f *Driver) Watch(ctx context.Context, notify func(string, driver.Status)) error {
	_, err := call(f, ctx, Watch, "", func(ctx context.Context) (struct{}, error) {
		return struct{}{}, f.d.Watch(ctx, func(id string, p driver.Status) { f.push(id, p, notify) })
	}, nil)
	return err
}

// push passes a push on by the plan.
func (f *Driver) push(id string, p driver.Status, notify func(string, driver.Status)) {
	r := f.next(Push, "of "+id)
	f.mu.Lock()
	before := f.swap
	f.swap = nil
	if r != nil && r.Do == Swap {
		f.swap = func() { notify(id, p) }
	}
	closed := f.closed
	f.mu.Unlock()
	if closed {
		return
	}
	switch {
	case r == nil:
		notify(id, p)
	case r.Do == Repeat:
		notify(id, p)
		notify(id, p)
	case r.Do == Gap:
		notify("", driver.Status{})
	case r.Do == Late:
		f.inBackground(func() {
			f.sleep(f.ctx, r.For)
			if f.ctx.Err() == nil {
				notify(id, p)
			}
		})
	}
	if before != nil {
		before()
	}
}

// Inspect implements [driver.Driver].
func (f *Driver) Inspect(ctx context.Context, name string) (driver.Queue, error) {
	return call(f, ctx, Inspect, fmt.Sprintf("%q", name), func(ctx context.Context) (driver.Queue, error) { return f.d.Inspect(ctx, name) }, nil)
}

// Names implements [driver.Driver]. It reads all names before it yields one.
func (f *Driver) Names(ctx context.Context, prefix string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		names, err := call(f, ctx, Names, fmt.Sprintf("%q", prefix), func(ctx context.Context) ([]string, error) {
			var names []string
			for name, err := range f.d.Names(ctx, prefix) {
				if err != nil {
					return nil, err
				}
				names = append(names, name)
			}
			return names, nil
		}, nil)
		if err != nil {
			yield("", err)
			return
		}
		for _, name := range names {
			if !yield(name, nil) {
				return
			}
		}
	}
}

// Break implements [driver.Driver].
func (f *Driver) Break(ctx context.Context, name, ticketID string) error {
	_, err := call(f, ctx, Break, "of "+ticketID, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, f.d.Break(ctx, name, ticketID)
	}, nil)
	return err
}

// Mark implements [driver.Marker], when the driver does.
func (f *Driver) Mark(ctx context.Context, name string) (driver.Mark, error) {
	d, ok := f.d.(driver.Marker)
	if !ok {
		return driver.Mark{}, driver.Errorf(driver.Refused, "the driver keeps no marks")
	}
	return call(f, ctx, Mark, fmt.Sprintf("%q", name), func(ctx context.Context) (driver.Mark, error) { return d.Mark(ctx, name) }, nil)
}

// SetMark implements [driver.Marker], when the driver does.
func (f *Driver) SetMark(ctx context.Context, name string, m driver.Mark) error {
	d, ok := f.d.(driver.Marker)
	if !ok {
		return driver.Errorf(driver.Refused, "the driver keeps no marks")
	}
	m.Value = bytes.Clone(m.Value) // the request may be carried out later
	_, err := call(f, ctx, SetMark, fmt.Sprintf("%q", name), func(ctx context.Context) (struct{}, error) {
		return struct{}{}, d.SetMark(ctx, name, m)
	}, nil)
	return err
}

// Close implements [driver.Driver]. Requests that are still on their way
// arrive before the driver is closed; pushes do not.
func (f *Driver) Close() error {
	f.mu.Lock()
	f.closed = true
	f.mu.Unlock()
	f.cancel()
	f.held.Wait()
	return f.d.Close()
}

// Identity implements [driver.Identifier], when the driver does.
func (f *Driver) Identity(ctx context.Context) (string, error) {
	if d, ok := f.d.(driver.Identifier); ok {
		return d.Identity(ctx)
	}
	return "", driver.Errorf(driver.Refused, "the driver has no identity")
}

// Check implements [driver.Checker], when the driver does.
func (f *Driver) Check(ctx context.Context) ([]driver.Finding, error) {
	if d, ok := f.d.(driver.Checker); ok {
		return d.Check(ctx)
	}
	return nil, driver.Errorf(driver.Refused, "the driver cannot examine its store")
}
