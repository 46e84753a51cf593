package drivertest

import (
	"context"
	"sync/atomic"

	"github.com/holdfast-go/holdfast/driver"
)

// link is a driver whose connection can be cut, in both directions or in one.
type link struct {
	driver.Driver
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

// through sends a request by the mode of its wire.
func through[A any](d *link, ctx context.Context, send func(context.Context) (A, error)) (A, error) {
	switch d.mode.Load() {
	case connected:
		return send(ctx)
	case requestsOnly:
		_, _ = send(context.WithoutCancel(ctx))
	}
	<-ctx.Done()
	var none A
	return none, ctx.Err()
}

func (d *link) Join(ctx context.Context, t *driver.Ticket, wait bool) (driver.Status, error) {
	return through(d, ctx, func(ctx context.Context) (driver.Status, error) {
		st, err := d.Driver.Join(ctx, t, wait)
		if err == nil {
			d.joins.Add(1)
		}
		return st, err
	})
}

func (d *link) Renew(ctx context.Context, refs []driver.Ref) ([]driver.Status, error) {
	return through(d, ctx, func(sent context.Context) ([]driver.Status, error) {
		ps, err := d.Driver.Renew(sent, refs)
		d.renewals.Add(1)
		if d.mode.Load() != connected { // cut meanwhile: a grant in the answer is lost
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return ps, err
	})
}

func (d *link) Leave(ctx context.Context, refs []driver.Ref) ([]driver.Status, error) {
	return through(d, ctx, func(ctx context.Context) ([]driver.Status, error) { return d.Driver.Leave(ctx, refs) })
}

func (d *link) Inspect(ctx context.Context, name string) (driver.Queue, error) {
	return through(d, ctx, func(ctx context.Context) (driver.Queue, error) { return d.Driver.Inspect(ctx, name) })
}

func (d *link) Watch(ctx context.Context, notify func(string, driver.Status)) error {
	return d.Driver.Watch(ctx, func(id string, p driver.Status) {
		if d.mode.Load() == connected {
			notify(id, p)
		}
	})
}
