package server

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/redislock/internal/wire"
)

// Join implements the method of [driver.Driver].
func (d *Driver) Join(ctx context.Context, t *driver.Ticket, wait bool) (driver.Status, error) {
	if err := d.CheckOpen(ctx); err != nil {
		return driver.Status{}, err
	}
	if t.Limit > wire.MaxUnits {
		return driver.Status{}, driver.Errorf(driver.Refused, "limit %d exceeds %d, the maximum that Redis counts exactly", t.Limit, wire.MaxUnits)
	}
	if d.Confirms != nil && wait {
		d.Confirms.expectPush(t) // a push may come before the answer
	}
	p, err := d.join(ctx, t, wait)
	if err == nil {
		p, err = d.Confirms.confirmed(ctx, d, t, p)
	} else if wire.DeniedOf(err) != "" {
		// A script that lacks a right for other tickets, or for its answer, may
		// have stopped after it had taken the place.
		_, _ = d.leave(ctx, []driver.Ref{{Ticket: t, State: driver.Held}})
	}
	if d.Confirms != nil && (err != nil && driver.ClassOf(err) != driver.Unknown || p.State == driver.Gone) {
		d.Confirms.pushDone(t.ID)
	}
	return p, err
}

// call sends a request on the client's shared connections and returns its
// answer, or an error as soon as ctx ends. In that case the request may stay
// under way.
func (d *Driver) call(ctx context.Context, r wire.Request) (wire.Reply, error) {
	m, err := d.client.Eval(ctx, r)
	return m, d.classify(err)
}

func (d *Driver) join(ctx context.Context, t *driver.Ticket, wait bool) (driver.Status, error) {
	r := d.requests.Join(t, wait, d.Polls.Load())
	err := d.restartGuard.choose(ctx, d, t.TTL, &r)
	if err != nil {
		return driver.Status{}, err
	}
	m, err := d.call(ctx, r)
	if wire.IsNoScript(err) {
		r.Full = true
		if err = d.restartGuard.choose(ctx, d, t.TTL, &r); err != nil {
			return driver.Status{}, err
		}
		m, err = d.call(ctx, r)
	}
	if err != nil {
		return driver.Status{}, err
	}
	p, err := wire.ReadStatus(&m, t)
	if err == nil {
		err = p.Err
	}
	if err != nil {
		return driver.Status{}, err
	}
	return d.paced(p), nil
}

// The pace of waiters without pushes: the first waiter polls every PaceFirst,
// the n-th every n × PaceFirst, but each at least every PaceLast.
const (
	PaceFirst = 20 * time.Millisecond
	PaceLast  = 500 * time.Millisecond
)

// paced shortens the recheck of a waiting ticket whose client gets no pushes.
func (d *Driver) paced(p driver.Status) driver.Status {
	if p.State == driver.Waiting && d.Polls.Load() {
		pace := min(PaceLast, PaceFirst*time.Duration(max(1, min(p.Ahead, 1000))))
		if p.Recheck == 0 || p.Recheck > pace {
			p.Recheck = pace
		}
	}
	return p
}
