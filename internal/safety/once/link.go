package once

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// link is a driver on a host that can be killed and paused: then no request and no
// push passes.
type link struct {
	driver.Driver
	marks   driver.Marker
	latency time.Duration
	slow    func(from time.Time) // is told of each request, with its delays in the network

	mu   sync.Mutex
	open chan struct{} // closed while the host lives and is not paused
}

func newLink(d driver.Driver, latency time.Duration, slow func(time.Time)) (*link, error) {
	m, ok := d.(driver.Marker)
	if !ok || !d.Traits().Marks {
		return nil, errors.Join(errors.New("the store keeps no marks"), d.Close())
	}
	l := &link{Driver: d, marks: m, latency: latency, slow: slow, open: make(chan struct{})}
	close(l.open)
	return l, nil
}

// shut holds everything back until resume is called.
func (l *link) shut() (resume func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	open := make(chan struct{})
	l.open = open
	return sync.OnceFunc(func() { close(open) })
}

// delay waits for the network.
func (l *link) delay(ctx context.Context) {
	if l.latency > 0 {
		sleep(ctx, rand.N(l.latency))
	}
}

// pass waits for the host.
func (l *link) pass(ctx context.Context) error {
	l.mu.Lock()
	open := l.open
	l.mu.Unlock()
	select {
	case <-open:
		return nil
	case <-ctx.Done():
		return driver.Wrap(driver.Unknown, context.Cause(ctx))
	}
}

// send sends a request; either it or its answer may be lost.
func send[A any](ctx context.Context, l *link, request func() (A, error)) (A, error) {
	var none A
	begun := time.Now()
	l.delay(ctx)
	there := time.Since(begun)
	if err := l.pass(ctx); err != nil {
		return none, err
	}
	arrived := time.Now()
	a, err := request()
	l.delay(ctx)
	l.slow(arrived.Add(-there)) // without the time for which the host was cut off
	if lost := l.pass(ctx); lost != nil {
		return none, lost
	}
	return a, err
}

// Join implements [driver.Driver].
func (l *link) Join(ctx context.Context, t *driver.Ticket, wait bool) (driver.Status, error) {
	return send(ctx, l, func() (driver.Status, error) { return l.Driver.Join(ctx, t, wait) })
}

// Renew implements [driver.Driver].
func (l *link) Renew(ctx context.Context, refs []driver.Ref) ([]driver.Status, error) {
	return send(ctx, l, func() ([]driver.Status, error) { return l.Driver.Renew(ctx, refs) })
}

// Leave implements [driver.Driver].
func (l *link) Leave(ctx context.Context, refs []driver.Ref) ([]driver.Status, error) {
	return send(ctx, l, func() ([]driver.Status, error) { return l.Driver.Leave(ctx, refs) })
}

// Inspect implements [driver.Driver].
func (l *link) Inspect(ctx context.Context, name string) (driver.Queue, error) {
	return send(ctx, l, func() (driver.Queue, error) { return l.Driver.Inspect(ctx, name) })
}

// Watch implements [driver.Driver]. Pushes to a host that is cut off are lost.
func (l *link) Watch(ctx context.Context, notify func(string, driver.Status)) error {
	return l.Driver.Watch(ctx, func(id string, s driver.Status) {
		l.mu.Lock()
		open := l.open
		l.mu.Unlock()
		select {
		case <-open:
			notify(id, s)
		default:
		}
	})
}

// Mark implements [driver.Marker].
func (l *link) Mark(ctx context.Context, name string) (driver.Mark, error) {
	return send(ctx, l, func() (driver.Mark, error) { return l.marks.Mark(ctx, name) })
}

// SetMark implements [driver.Marker].
func (l *link) SetMark(ctx context.Context, name string, m driver.Mark) error {
	_, err := send(ctx, l, func() (struct{}, error) { return struct{}{}, l.marks.SetMark(ctx, name, m) })
	return err
}
