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
	faults.Hooked
	latency time.Duration
	slow    func(from time.Time) // is told of each request, with its delays in the network

	down faults.Gate // shut while the host is dead or paused
}

func newLink(d driver.Driver, latency time.Duration, slow func(time.Time)) (*link, error) {
	if _, ok := d.(driver.Marker); !ok || !d.Traits().Marks {
		return nil, errors.Join(errors.New("the store keeps no marks"), d.Close())
	}
	l := &link{latency: latency, slow: slow}
	l.Hooked = faults.Hooked{Driver: d, OnRequest: l.request, OnPush: l.push}
	return l, nil
}

// delay waits for the network.
func (l *link) delay(ctx context.Context) {
	if l.latency > 0 {
		sleep(ctx, rand.N(l.latency))
	}
}

// request sends a request; either it or its answer may be lost.
func (l *link) request(ctx context.Context, r *faults.Request) (any, error) {
	if r.Op == faults.Watch {
		return r.Send(ctx)
	}
	begun := time.Now()
	l.delay(ctx)
	there := time.Since(begun)
	if err := l.down.Pass(ctx); err != nil {
		return nil, err
	}
	arrived := time.Now()
	a, err := r.Send(ctx)
	l.delay(ctx)
	l.slow(arrived.Add(-there)) // without the time for which the host was cut off
	if lost := l.down.Pass(ctx); lost != nil {
		return nil, lost
	}
	return a, err
}

// push passes a push on. Pushes to a host that is cut off are lost.
func (l *link) push(id string, s driver.Status, notify func(string, driver.Status)) {
	if !l.down.IsShut() {
		notify(id, s)
	}
}
