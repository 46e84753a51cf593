package holdfast_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testkit/faults"
	"github.com/holdfast-go/holdfast/memlock"
)

// hooked is a driver whose requests a test can watch, delay and lose. A nil
// hook passes the request on.
type hooked struct {
	faults.Hooked
	mu    sync.Mutex
	join  func(ctx context.Context, t *driver.Ticket, next joinFunc) (driver.Status, error)
	renew func(ctx context.Context, refs []driver.Ref, next batchFunc) ([]driver.Status, error)
	leave func(ctx context.Context, refs []driver.Ref, next batchFunc) ([]driver.Status, error)
	push  func(id string, p driver.Status, next func(string, driver.Status))
	look  func(ctx context.Context, next lookFunc) (driver.Queue, error)

	mark    func(ctx context.Context, next func() (driver.Mark, error)) (driver.Mark, error)
	setMark func(ctx context.Context, next func() error) error

	joins, renews, leaves, reads, sets int // requests sent
	renewed                            int // tickets in the renewals
}

type (
	joinFunc  func() (driver.Status, error)
	batchFunc func() ([]driver.Status, error)
	lookFunc  func() (driver.Queue, error)
)

// sentRenews returns the number of renewals sent.
func (d *hooked) sentRenews() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.renews
}

// sent returns the numbers of Marks, SetMarks and Joins sent.
func (d *hooked) sent() (reads, sets, joins int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.reads, d.sets, d.joins
}

// sentJoins returns the number of Joins sent.
func (d *hooked) sentJoins() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.joins
}

// request counts a request, and lets its hook answer it.
func (d *hooked) request(ctx context.Context, r *faults.Request) (any, error) {
	d.mu.Lock()
	join, renew, leave, look, mark, setMark := d.join, d.renew, d.leave, d.look, d.mark, d.setMark
	switch r.Op {
	case faults.Join:
		d.joins++
	case faults.Renew:
		d.renews++
		d.renewed += len(r.Refs)
	case faults.Leave:
		d.leaves++
	case faults.Mark:
		d.reads++
	case faults.SetMark:
		d.sets++
	}
	d.mu.Unlock()
	switch {
	case r.Op == faults.Join && join != nil:
		return join(ctx, r.Ticket, next[driver.Status](ctx, r))
	case r.Op == faults.Renew && renew != nil:
		return renew(ctx, r.Refs, next[[]driver.Status](ctx, r))
	case r.Op == faults.Leave && leave != nil:
		return leave(ctx, r.Refs, next[[]driver.Status](ctx, r))
	case r.Op == faults.Inspect && look != nil:
		return look(ctx, next[driver.Queue](ctx, r))
	case r.Op == faults.Mark && mark != nil:
		return mark(ctx, next[driver.Mark](ctx, r))
	case r.Op == faults.SetMark && setMark != nil:
		return nil, setMark(ctx, func() error { _, err := r.Send(ctx); return err })
	}
	return r.Send(ctx)
}

// next returns a function that sends a request.
func next[A any](ctx context.Context, r *faults.Request) func() (A, error) {
	return func() (A, error) {
		a, err := r.Send(ctx)
		answer, _ := a.(A)
		return answer, err
	}
}

func (d *hooked) passPush(id string, p driver.Status, moved func(string, driver.Status)) {
	d.mu.Lock()
	hook := d.push
	d.mu.Unlock()
	if hook != nil {
		hook(id, p, moved)
		return
	}
	moved(id, p)
}

// set changes hooks while requests are in flight.
func (d *hooked) set(f func(d *hooked)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f(d)
}

// cut makes the store silent: requests hang until their context ends.
func (d *hooked) cut() {
	d.set(func(d *hooked) {
		d.join = func(ctx context.Context, _ *driver.Ticket, _ joinFunc) (driver.Status, error) {
			<-ctx.Done()
			return driver.Status{}, ctx.Err()
		}
		silent := func(ctx context.Context, _ []driver.Ref, _ batchFunc) ([]driver.Status, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		d.renew, d.leave = silent, silent
		d.look = func(ctx context.Context, _ lookFunc) (driver.Queue, error) {
			<-ctx.Done()
			return driver.Queue{}, ctx.Err()
		}
		d.push = func(string, driver.Status, func(string, driver.Status)) {}
	})
}

func (d *hooked) heal() {
	d.set(func(d *hooked) { d.join, d.renew, d.leave, d.push, d.look = nil, nil, nil, nil, nil })
}

func hook(s *memlock.Store) *hooked {
	d := new(hooked)
	d.Hooked = faults.Hooked{Driver: memlock.New(s), OnRequest: d.request, OnPush: d.passPush}
	return d
}

func client(tb testing.TB, d driver.Driver, opts ...holdfast.ClientOption) *holdfast.Client {
	tb.Helper()
	c, err := holdfast.New(d, opts...)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { c.Close() })
	return c
}

// bubble runs a test in fake time.
func bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, f)
}

func must(tb testing.TB) func(h *holdfast.Hold, err error) *holdfast.Hold {
	return func(h *holdfast.Hold, err error) *holdfast.Hold {
		tb.Helper()
		if err != nil {
			tb.Fatalf("lock: %v", err)
		}
		return h
	}
}

func unlock(tb testing.TB, h *holdfast.Hold) {
	tb.Helper()
	if err := h.Unlock(); err != nil {
		tb.Fatalf("Unlock: %v", err)
	}
}

func wantErr(tb testing.TB, err, want error) {
	tb.Helper()
	if !errors.Is(err, want) {
		tb.Fatalf("error %v, want one that is %v", err, want)
	}
}

// tickets returns the number of tickets of a name.
func tickets(tb testing.TB, c *holdfast.Client, name string) int {
	tb.Helper()
	l, err := c.Inspect(context.Background(), name)
	if err != nil {
		tb.Fatal(err)
	}
	return len(l.Holders) + len(l.Waiters)
}

// settle lets background work of a bubble finish.
func settle() { time.Sleep(time.Millisecond); synctest.Wait() }
