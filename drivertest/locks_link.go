package drivertest

import (
	"context"
	"sync/atomic"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testkit/faults"
)

// link is a driver whose connection can be cut, in both directions or in one.
type link struct {
	faults.Hooked
	mode     atomic.Int32
	joins    atomic.Int64 // replies to Joins
	renewals atomic.Int64 // replies to Renews
}

// The modes of a wire.
const (
	connected    int32 = iota
	cut                // nothing arrives
	requestsOnly       // requests arrive, answers and pushes do not
)

func newLink(d driver.Driver) *link {
	l := new(link)
	l.Hooked = faults.Hooked{Driver: d, OnRequest: l.request, OnPush: l.push}
	return l
}

// request sends a request by the mode of its wire.
func (l *link) request(ctx context.Context, r *faults.Request) (any, error) {
	switch mode := l.mode.Load(); {
	case r.Op == faults.Watch:
		return r.Send(ctx)
	case mode == connected:
		a, err := l.send(ctx, r)
		if r.Op != faults.Renew || l.mode.Load() == connected {
			return a, err
		} // cut meanwhile: a grant in the answer is lost
	case mode == requestsOnly:
		_, _ = l.send(context.WithoutCancel(ctx), r)
	}
	<-ctx.Done()
	return nil, ctx.Err()
}

// send sends a request, and counts the reply.
func (l *link) send(ctx context.Context, r *faults.Request) (any, error) {
	a, err := r.Send(ctx)
	switch {
	case r.Op == faults.Join && err == nil:
		l.joins.Add(1)
	case r.Op == faults.Renew:
		l.renewals.Add(1)
	}
	return a, err
}

func (l *link) push(id string, s driver.Status, notify func(string, driver.Status)) {
	if l.mode.Load() == connected {
		notify(id, s)
	}
}
