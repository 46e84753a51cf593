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
// hook passes on.
type hooked struct {
	driver.Driver
	mu    sync.Mutex
	join  func(ctx context.Context, t *driver.Ticket, next joinFunc) (driver.Place, error)
	renew func(ctx context.Context, refs []driver.Ref, next batchFunc) ([]driver.Place, error)
	leave func(ctx context.Context, refs []driver.Ref, next batchFunc) ([]driver.Place, error)
	push  func(id string, p driver.Place, next func(string, driver.Place))

	joins, renews, leaves int // requests sent
	renewed               int // tickets in them
}

type (
	joinFunc  func() (driver.Place, error)
	batchFunc func() ([]driver.Place, error)
)

func (d *hooked) count(n *int, by int) {
	d.mu.Lock()
	*n += by
	d.mu.Unlock()
}

func (d *hooked) Join(ctx context.Context, t *driver.Ticket, wait bool) (driver.Place, error) {
	d.count(&d.joins, 1)
	next := func() (driver.Place, error) { return d.Driver.Join(ctx, t, wait) }
	d.mu.Lock()
	hook := d.join
	d.mu.Unlock()
	if hook != nil {
		return hook(ctx, t, next)
	}
	return next()
}

func (d *hooked) Renew(ctx context.Context, refs []driver.Ref) ([]driver.Place, error) {
	d.count(&d.renews, 1)
	d.count(&d.renewed, len(refs))
	next := func() ([]driver.Place, error) { return d.Driver.Renew(ctx, refs) }
	d.mu.Lock()
	hook := d.renew
	d.mu.Unlock()
	if hook != nil {
		return hook(ctx, refs, next)
	}
	return next()
}

func (d *hooked) Leave(ctx context.Context, refs []driver.Ref) ([]driver.Place, error) {
	d.count(&d.leaves, 1)
	next := func() ([]driver.Place, error) { return d.Driver.Leave(ctx, refs) }
	d.mu.Lock()
	hook := d.leave
	d.mu.Unlock()
	if hook != nil {
		return hook(ctx, refs, next)
	}
	return next()
}

func (d *hooked) Watch(ctx context.Context, moved func(string, driver.Place)) error {
	return d.Driver.Watch(ctx, func(id string, p driver.Place) {
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

// set changes hooks while requests are under way.
func (d *hooked) set(f func(d *hooked)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f(d)
}

// cut makes the store silent: requests hang until their context ends.
func (d *hooked) cut() {
	d.set(func(d *hooked) {
		d.join = func(ctx context.Context, _ *driver.Ticket, _ joinFunc) (driver.Place, error) {
			<-ctx.Done()
			return driver.Place{}, ctx.Err()
		}
		silent := func(ctx context.Context, _ []driver.Ref, _ batchFunc) ([]driver.Place, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		d.renew, d.leave = silent, silent
		d.push = func(string, driver.Place, func(string, driver.Place)) {}
	})
}

func (d *hooked) heal() {
	d.set(func(d *hooked) { d.join, d.renew, d.leave, d.push = nil, nil, nil, nil })
}

func hook(s *memlock.Store) *hooked { return &hooked{Driver: memlock.New(s)} }

func client(tb testing.TB, d driver.Driver, opts ...holdfast.Option) *holdfast.Client {
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

// tickets returns how many tickets a name has.
func tickets(tb testing.TB, c *holdfast.Client, name string) int {
	tb.Helper()
	l, err := c.Inspect(context.Background(), name)
	if err != nil {
		tb.Fatal(err)
	}
	return len(l.Tickets)
}

// eventually lets background work of a bubble finish.
func settle() { time.Sleep(time.Millisecond); synctest.Wait() }
