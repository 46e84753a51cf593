package redislock

import (
	"context"
	"strconv"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/redislock/internal/wire"
)

// Join implements [driver.Driver]. Limits above 2^53 - 1 are refused.
func (d *Driver) Join(ctx context.Context, t *driver.Ticket, wait bool) (driver.Status, error) {
	if err := d.checkOpen(ctx); err != nil {
		return driver.Status{}, err
	}
	if t.Limit > wire.MaxUnits {
		return driver.Status{}, driver.Errorf(driver.Refused, "limit %d exceeds %d, the maximum that Redis counts exactly", t.Limit, wire.MaxUnits)
	}
	if d.confirms != nil && wait {
		d.confirms.expectPush(t) // a push may come before the answer
	}
	p, err := d.join(ctx, t, wait)
	if err == nil {
		p, err = d.confirmed(ctx, t, p)
	} else if wire.DeniedOf(err) != "" {
		// A script that lacks a right on other tickets' behalf may have
		// stopped after it had taken the place.
		_, _ = d.leave(ctx, []driver.Ref{{Ticket: t, State: driver.Held}})
	}
	if d.confirms != nil && (err != nil && driver.ClassOf(err) != driver.Unknown || p.State == driver.Gone) {
		d.confirms.pushDone(t.ID)
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
	l := d.keys.Get(t.Name)
	s, err := d.joinBy(ctx, t, nil)
	if err != nil {
		return driver.Status{}, err
	}
	r := d.joinRequest(l, t, wait)
	r.Script = s
	m, err := d.call(ctx, r)
	if wire.IsNoScript(err) {
		if s, err = d.joinBy(ctx, t, s); err != nil {
			return driver.Status{}, err
		}
		r.Script, r.Full = s, d.restartGuard == nil
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

// The pace of waiters without pushes: the first waiter polls every paceFirst,
// the n-th every n × paceFirst, but each at least every paceLast.
const (
	paceFirst = 20 * time.Millisecond
	paceLast  = 500 * time.Millisecond
)

// paced shortens the recheck of a waiting ticket whose client gets no pushes.
func (d *Driver) paced(p driver.Status) driver.Status {
	if p.State == driver.Waiting && d.polls.Load() {
		pace := min(paceLast, paceFirst*time.Duration(max(1, min(p.Ahead, 1000))))
		if p.Recheck == 0 || p.Recheck > pace {
			p.Recheck = pace
		}
	}
	return p
}

// joinRequest returns the request that joins, without its script.
func (d *Driver) joinRequest(l *wire.QueueKeys, t *driver.Ticket, wait bool) wire.Request {
	channel := l.Channel
	if d.polls.Load() {
		channel = "" // the scripts grant to a ticket without a channel and publish nothing
	}
	r := wire.Request{Keys: l.All(), NumArgs: 5, Args: [wire.MaxArgs]string{t.ID, d.keep(t.TTL), channel, t.Meta, wire.Yes(wait)}}
	if t.MinToken != 0 {
		r.NumArgs = 6
		r.Args[5] = strconv.FormatUint(t.MinToken, 10)
	}
	if !wire.IsMutex(t) || t.Replaces != nil {
		r.NumArgs = wire.MaxArgs
		r.Args[5] = strconv.FormatUint(t.MinToken, 10)
		r.Args[6] = strconv.FormatInt(t.Limit, 10)
		r.Args[7] = strconv.FormatInt(t.Units, 10)
		r.Args[8] = t.Owner
		if t.Replaces != nil {
			r.Args[9] = t.Replaces.ID
		}
	}
	return r
}

// keepText is the time for which tickets of a TTL are kept, in milliseconds,
// as text.
type keepText struct {
	ttl  time.Duration
	text string
}

// keep returns the milliseconds for which the store keeps a ticket.
func (d *Driver) keep(ttl time.Duration) string {
	if k := d.keeps.Load(); k != nil && k.ttl == ttl {
		return k.text
	}
	ms := (driver.Keep(ttl) + time.Millisecond - 1) / time.Millisecond
	k := &keepText{ttl, strconv.FormatInt(int64(ms), 10)}
	d.keeps.Store(k)
	return k.text
}
