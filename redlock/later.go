package redlock

import (
	"context"
	"iter"
	"sync"

	"github.com/holdfast-go/holdfast/driver"
)

// Later returns a node that is opened once that is possible, for a server that
// is down while the others are opened. Until then its calls try to open it, one
// at a time, and answer with the error of that attempt, as Unavailable unless
// it has a class. Its Traits are the argument traits, usually the other nodes'.
// It never returns nil.
func Later(traits driver.Traits, open func(ctx context.Context) (driver.Driver, error)) driver.Driver {
	return &later{traits: traits, open: open, turn: make(chan struct{}, 1), done: make(chan struct{})}
}

// later is the node that Later returns. Under mu, a driver that was opened after
// Close is closed; no mutex of this package is taken.
type later struct {
	traits driver.Traits
	open   func(ctx context.Context) (driver.Driver, error)
	turn   chan struct{} // holds a value while open runs

	mu     sync.Mutex
	d      driver.Driver
	closed bool
	done   chan struct{}
}

// get returns the driver, and opens it if need be.
func (l *later) get(ctx context.Context) (driver.Driver, error) {
	if d, err := l.opened(); d != nil || err != nil {
		return d, err
	}
	if err := driver.Before(ctx); err != nil {
		return nil, err
	}
	select {
	case l.turn <- struct{}{}:
		defer func() { <-l.turn }()
	case <-l.done:
		return nil, driver.ErrClosed
	case <-ctx.Done():
		return nil, &driver.Error{Class: driver.NotDone, Err: context.Cause(ctx)}
	}
	if d, err := l.opened(); d != nil || err != nil {
		return d, err
	}
	d, err := l.open(ctx)
	if err != nil {
		return nil, driver.Wrap(driver.Unavailable, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		_ = d.Close()
		return nil, driver.ErrClosed
	}
	l.d = d
	return d, nil
}

func (l *later) opened() (driver.Driver, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, driver.ErrClosed
	}
	return l.d, nil
}

// Traits implements [driver.Driver].
func (l *later) Traits() driver.Traits { return l.traits }

// with returns what f returns for the driver, or the error of opening it.
func with[A any](ctx context.Context, l *later, f func(d driver.Driver) (A, error)) (none A, err error) {
	d, err := l.get(ctx)
	if err != nil {
		return none, err
	}
	return f(d)
}

// Join implements [driver.Driver].
func (l *later) Join(ctx context.Context, t *driver.Ticket, wait bool) (driver.Status, error) {
	return with(ctx, l, func(d driver.Driver) (driver.Status, error) { return d.Join(ctx, t, wait) })
}

// Renew implements [driver.Driver].
func (l *later) Renew(ctx context.Context, refs []driver.Ref) ([]driver.Status, error) {
	return with(ctx, l, func(d driver.Driver) ([]driver.Status, error) { return d.Renew(ctx, refs) })
}

// Leave implements [driver.Driver].
func (l *later) Leave(ctx context.Context, refs []driver.Ref) ([]driver.Status, error) {
	return with(ctx, l, func(d driver.Driver) ([]driver.Status, error) { return d.Leave(ctx, refs) })
}

// Watch implements [driver.Driver].
func (l *later) Watch(ctx context.Context, notify func(string, driver.Status)) error {
	_, err := with(ctx, l, func(d driver.Driver) (any, error) { return nil, d.Watch(ctx, notify) })
	return err
}

// Inspect implements [driver.Driver].
func (l *later) Inspect(ctx context.Context, name string) (driver.Queue, error) {
	return with(ctx, l, func(d driver.Driver) (driver.Queue, error) { return d.Inspect(ctx, name) })
}

// Names implements [driver.Driver].
func (l *later) Names(ctx context.Context, prefix string) iter.Seq2[string, error] {
	d, err := l.get(ctx)
	if err != nil {
		return func(yield func(string, error) bool) { yield("", err) }
	}
	return d.Names(ctx, prefix)
}

// Break implements [driver.Driver].
func (l *later) Break(ctx context.Context, name, ticketID string) error {
	_, err := with(ctx, l, func(d driver.Driver) (any, error) { return nil, d.Break(ctx, name, ticketID) })
	return err
}

// Identity implements [driver.Identifier].
func (l *later) Identity(ctx context.Context) (string, error) {
	return with(ctx, l, func(d driver.Driver) (string, error) {
		if named, ok := d.(driver.Identifier); ok {
			return named.Identity(ctx)
		}
		return "", driver.Errorf(driver.Refused, "the node has no identity")
	})
}

// Server implements [Hosted].
func (l *later) Server(ctx context.Context) (string, error) {
	return with(ctx, l, func(d driver.Driver) (string, error) { return identityOf(ctx, d) })
}

// Check implements [driver.Checker].
func (l *later) Check(ctx context.Context) ([]driver.Finding, error) {
	return with(ctx, l, func(d driver.Driver) ([]driver.Finding, error) {
		if c, ok := d.(driver.Checker); ok {
			return c.Check(ctx)
		}
		return nil, nil
	})
}

// Close implements [driver.Driver].
func (l *later) Close() error {
	l.mu.Lock()
	first, d := !l.closed, l.d
	l.closed = true
	l.mu.Unlock()
	if first {
		close(l.done)
	}
	if d == nil {
		return nil
	}
	return d.Close()
}
