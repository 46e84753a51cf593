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
	"github.com/holdfast-go/holdfast/memlock"
)

// hooked is a driver whose requests a test can watch, delay and lose. A nil
// hook passes the request on.
type hooked struct {
	driver.Driver
	mu    sync.Mutex
	join  func(ctx context.Context, t *driver.Ticket, next joinFunc) (driver.Status, error)
	renew func(ctx context.Context, refs []driver.Ref, next batchFunc) ([]driver.Status, error)
	leave func(ctx context.Context, refs []driver.Ref, next batchFunc) ([]driver.Status, error)
	push  func(id string, p driver.Status, next func(string, driver.Status))
	look  func(ctx context.Context, next lookFunc) (driver.Queue, error)

	joins, renews, leaves int // requests sent
	renewed               int // tickets in them
}

type (
	joinFunc  func() (driver.Status, error)
	batchFunc func() ([]driver.Status, error)
	lookFunc  func() (driver.Queue, error)
)

func (d *hooked) count(n *int, by int) {
	d.mu.Lock()
	*n += by
	d.mu.Unlock()
}

// sentRenews returns the number of renewals sent.
func (d *hooked) sentRenews() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.renews
}

// sentJoins returns the number of Joins sent.
func (d *hooked) sentJoins() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.joins
}

func (d *hooked) Join(ctx context.Context, t *driver.Ticket, wait bool) (driver.Status, error) {
	d.count(&d.joins, 1)
	next := func() (driver.Status, error) { return d.Driver.Join(ctx, t, wait) }
	d.mu.Lock()
	hook := d.join
	d.mu.Unlock()
	if hook != nil {
		return hook(ctx, t, next)
	}
	return next()
}

func (d *hooked) Renew(ctx context.Context, refs []driver.Ref) ([]driver.Status, error) {
	d.count(&d.renews, 1)
	d.count(&d.renewed, len(refs))
	next := func() ([]driver.Status, error) { return d.Driver.Renew(ctx, refs) }
	d.mu.Lock()
	hook := d.renew
	d.mu.Unlock()
	if hook != nil {
		return hook(ctx, refs, next)
	}
	return next()
}

func (d *hooked) Leave(ctx context.Context, refs []driver.Ref) ([]driver.Status, error) {
	d.count(&d.leaves, 1)
	next := func() ([]driver.Status, error) { return d.Driver.Leave(ctx, refs) }
	d.mu.Lock()
	hook := d.leave
	d.mu.Unlock()
	if hook != nil {
		return hook(ctx, refs, next)
	}
	return next()
}

func (d *hooked) Inspect(ctx context.Context, name string) (driver.Queue, error) {
	next := func() (driver.Queue, error) { return d.Driver.Inspect(ctx, name) }
	d.mu.Lock()
	hook := d.look
	d.mu.Unlock()
	if hook != nil {
		return hook(ctx, next)
	}
	return next()
}

func (d *hooked) Watch(ctx context.Context, moved func(string, driver.Status)) error {
	return d.Driver.Watch(ctx, func(id string, p driver.Status) {
		d.mu.Lock()
		hook := d.push
		d.mu.Unlock()
		if hook != nil {
			hook(id, p, moved)
			return
		}
		moved(id, p)
	})
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

func hook(s *memlock.Store) *hooked { return &hooked{Driver: memlock.New(s)} }

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
