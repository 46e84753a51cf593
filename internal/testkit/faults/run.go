package faults

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// Run is a plan in force.
type Run struct {
	plan  Plan
	start time.Time

	ctx    context.Context // ends with End, which delivers what is held
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

// ErrLost is in the errors of Lost.
var ErrLost = errors.New("lost on the way, as planned")

// Begin puts the plan into force. It panics when a rule cannot happen to what it is for.
func (p Plan) Begin() *Run {
	for _, r := range p.Rules {
		if err := r.check(); err != nil {
			panic("faults: " + err.Error())
		}
	}
	f := &Run{plan: p, start: time.Now(), applied: make([]int, len(p.Rules))}
	f.ctx, f.cancel = context.WithCancel(context.Background())
	return f
}

// Log returns the faults so far, one line each.
func (f *Run) Log() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]string(nil), f.log...)
}

// Applied returns the number of requests that each rule of the plan applied to
// so far.
func (f *Run) Applied() []int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]int(nil), f.applied...)
}

// Heal ends the plan: from now on requests and pushes are sent unchanged. Those that it holds
// arrive when their time is over.
func (f *Run) Heal() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.healed = true
}

// next counts a request and returns the rule that decides about it, or nil.
func (f *Run) next(op Op, what string) *Rule {
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

// Request sends one request by the plan. A Watch is never carried out twice, nor when its
// caller is told that it failed: a rule that would do that cuts the request.
func (f *Run) Request(ctx context.Context, q *Request) (any, error) {
	f.mu.Lock()
	closed := f.closed
	f.mu.Unlock()
	if closed {
		return nil, driver.ErrClosed
	}
	if err := driver.Before(ctx); err != nil {
		return nil, err
	}
	r := f.next(q.Op, q.subject())
	if r == nil {
		return q.Send(ctx)
	}
	do := r.Do
	if q.Op == Watch && do != Refuse && do != NotReady {
		f.sleep(ctx, r.For)
		if held := do == HoldRequest || do == HoldAnswer; held && ctx.Err() == nil {
			return q.Send(ctx)
		}
		return nil, Lost(ctx)
	}
	switch do {
	case CutRequest:
		f.sleep(ctx, r.For)
		return nil, Lost(ctx)
	case LoseAnswer:
		_, _ = q.Send(context.WithoutCancel(ctx))
		f.sleep(ctx, r.For)
		return nil, Lost(ctx)
	case HoldRequest:
		type result struct {
			answer any
			err    error
		}
		done := make(chan result, 1)
		later := q.Detached()
		if !f.inBackground(func() {
			f.sleep(f.ctx, r.For)
			a, err := later.Send(context.WithoutCancel(ctx))
			done <- result{a, err}
		}) {
			return nil, driver.ErrClosed
		}
		select {
		case res := <-done:
			if q.Ticket != nil && later.Ticket.DriverData != nil {
				q.Ticket.DriverData = later.Ticket.DriverData
			}
			return res.answer, res.err
		case <-ctx.Done():
			return nil, Lost(ctx)
		}
	case HoldAnswer:
		a, err := q.Send(ctx)
		f.sleep(ctx, r.For)
		if ctx.Err() != nil {
			return nil, Lost(ctx)
		}
		return a, err
	case Overload:
		f.mu.Lock()
		f.inFlight++
		n := f.inFlight
		f.mu.Unlock()
		a, err := q.Send(ctx)
		f.sleep(ctx, time.Duration(n)*r.For)
		f.mu.Lock()
		f.inFlight--
		f.mu.Unlock()
		if ctx.Err() != nil {
			return nil, Lost(ctx)
		}
		return a, err
	case NotReady:
		return nil, driver.NotReady(r.For, "not ready, as planned")
	case Double:
		_, first := q.Send(ctx)
		a, err := q.Send(ctx)
		if isSurelyNotDone(err) && !isSurelyNotDone(first) {
			return nil, Lost(ctx)
		}
		return a, err
	default:
		return nil, &driver.Error{Class: driver.Unavailable, Err: errors.New("unavailable, as planned")}
	}
}

// isSurelyNotDone reports whether a request failed with an error that says so.
func isSurelyNotDone(err error) bool {
	class := driver.ClassOf(err)
	return err != nil && (class == driver.NotDone || class == driver.Unavailable)
}

// inBackground does something that Close waits for, unless it is too late for that.
func (f *Run) inBackground(do func()) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.closed {
		f.held.Go(do)
	}
	return !f.closed
}

// sleep sleeps until d is over, ctx ends, or the driver is closed.
func (f *Run) sleep(ctx context.Context, d time.Duration) {
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

// Lost returns the error of a request whose outcome its caller does not learn.
func Lost(ctx context.Context) error {
	if ctx.Err() != nil {
		return &driver.Error{Class: driver.Unknown, Err: errors.Join(ErrLost, context.Cause(ctx))}
	}
	return &driver.Error{Class: driver.Unknown, Err: ErrLost}
}

// Push passes a push on by the plan.
func (f *Run) Push(id string, p driver.Status, notify func(string, driver.Status)) {
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

// End ends the plan when every request that is still on its way has arrived. Pushes that
// are held do not arrive.
func (f *Run) End() {
	f.mu.Lock()
	f.closed = true
	f.mu.Unlock()
	f.cancel()
	f.held.Wait()
}
