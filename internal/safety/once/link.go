package once

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testkit/faults"
)

// link is a driver on a host that can be killed and paused: then no request and no
// push passes.
type link struct {
	driver.Driver
	marks   driver.Marker
	latency time.Duration
	slow    func(from time.Time) // is told of each request, with its delays in the network

	down faults.Gate // shut while the host is dead or paused
}

func newLink(d driver.Driver, latency time.Duration, slow func(time.Time)) (*link, error) {
	m, ok := d.(driver.Marker)
	if !ok || !d.Traits().Marks {
		return nil, errors.Join(errors.New("the store keeps no marks"), d.Close())
	}
	return &link{Driver: d, marks: m, latency: latency, slow: slow}, nil
}

// delay waits for the network.
func (l *link) delay(ctx context.Context) {
	if l.latency > 0 {
		sleep(ctx, rand.N(l.latency))
	}
}

// send sends a request; either it or its answer may be lost.
func send[A any](ctx context.Context, l *link, request func() (A, error)) (A, error) {
	var none A
	begun := time.Now()
	l.delay(ctx)
	there := time.Since(begun)
	if err := l.down.Pass(ctx); err != nil {
		return none, err
	}
	arrived := time.Now()
	a, err := request()
	l.delay(ctx)
	l.slow(arrived.Add(-there)) // without the time for which the host was cut off
	if lost := l.down.Pass(ctx); lost != nil {
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
		if !l.down.IsShut() {
			notify(id, s)
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
