package redislock

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/redislock/internal/wire"
)

// maxUnits is the greatest limit: the largest number that is exact in scripts.
const maxUnits = 1<<53 - 1

// Answers of the scripts that are no state.
const (
	foreign  = -1
	mismatch = -2
	upgrade  = -3
	spent    = -4
)

var errSpent = driver.Errorf(driver.Refused, "the queue has no more tokens")

// plain reports whether the ticket is an ordinary mutex, held in one key.
func plain(t *driver.Ticket) bool { return t.Limit == 1 && t.Owner == "" }

// Join implements [driver.Driver]. Limits above 2^53 - 1 are refused.
func (d *Driver) Join(ctx context.Context, t *driver.Ticket, wait bool) (driver.Status, error) {
	if err := d.checkOpen(ctx); err != nil {
		return driver.Status{}, err
	}
	if t.Limit > maxUnits {
		return driver.Status{}, driver.Errorf(driver.Refused, "limit %d exceeds %d, the maximum that Redis counts exactly", t.Limit, maxUnits)
	}
	if d.confirms != nil && wait {
		d.confirms.expectPush(t) // a push may come before the answer
	}
	p, err := d.join(ctx, t, wait)
	if err == nil {
		p, err = d.confirmed(ctx, t, p)
	} else if deniedOf(err) != "" {
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
	l := d.keys.get(t.Name)
	s, err := d.joinBy(ctx, t, nil)
	if err != nil {
		return driver.Status{}, err
	}
	r := d.joinRequest(l, t, wait)
	r.Script = s
	m, err := d.call(ctx, r)
	if noScript(err) {
		if s, err = d.joinBy(ctx, t, s); err != nil {
			return driver.Status{}, err
		}
		r.Script, r.Full = s, d.restartGuard == nil
		m, err = d.call(ctx, r)
	}
	if err != nil {
		return driver.Status{}, err
	}
	p, err := readPlace(&m, t)
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
func (d *Driver) joinRequest(l *queueKeys, t *driver.Ticket, wait bool) wire.Request {
	channel := l.channel
	if d.polls.Load() {
		channel = "" // the scripts grant to a ticket without a channel and publish nothing
	}
	r := wire.Request{Keys: l.all(), NumArgs: 5, Args: [wire.MaxArgs]string{t.ID, d.keep(t.TTL), channel, t.Meta, yes(wait)}}
	if t.MinToken != 0 {
		r.NumArgs = 6
		r.Args[5] = strconv.FormatUint(t.MinToken, 10)
	}
	if !plain(t) || t.Replaces != nil {
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

func yes(b bool) string {
	if b {
		return "1"
	}
	return ""
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

// readPlace reads a script's answer about a ticket.
func readPlace(m *wire.Reply, t *driver.Ticket) (driver.Status, error) {
	if n, err := m.Int(); err == nil {
		if n <= 0 {
			return driver.Status{}, unreadable("token %d", n)
		}
		return driver.Status{State: driver.Held, Token: uint64(n), Lease: t.TTL}, nil
	}
	if text, err := m.Text(); err == nil { // the error is of this ticket alone
		return driver.Status{Err: answered(text, fmt.Errorf("redis: %w", wire.ServerError(text)))}, nil
	}
	list, err := m.List()
	if err != nil || len(list) == 0 {
		return driver.Status{}, unreadable("no state")
	}
	code, err := list[0].Int()
	if err != nil {
		return driver.Status{}, unreadable("no state")
	}
	switch code {
	case int64(driver.Gone):
		p := driver.Status{State: driver.Gone}
		if len(list) > 3 {
			return readBusy(list)
		}
		return p, nil
	case int64(driver.Waiting):
		if len(list) < 4 {
			break
		}
		ahead, err1 := list[1].Int()
		recheck, err2 := list[2].Int()
		holder, err3 := readHolder(list[3:])
		if err1 != nil || err2 != nil || err3 != nil || ahead < 0 || recheck < 0 || recheck > maxRecheck {
			break
		}
		return driver.Status{State: driver.Waiting, Lease: t.TTL, Ahead: int(ahead),
			Recheck: time.Duration(recheck) * time.Millisecond, Holder: holder}, nil
	case foreign:
		return driver.Status{Err: driver.Wrap(driver.Refused, errForeign)}, nil
	case mismatch:
		if len(list) < 2 {
			break
		}
		have, err := list[1].Int()
		if err != nil {
			break
		}
		return driver.Status{Err: &driver.LimitError{Name: t.Name, Have: have, Want: t.Limit}}, nil
	case upgrade:
		return driver.Status{Err: driver.ErrUpgrade}, nil
	case spent:
		return driver.Status{Err: errSpent}, nil
	}
	return driver.Status{}, unreadable("state %d of %d values", code, len(list))
}

// readBusy reads the answer to a ticket that must not wait: who holds, and how
// long the server keeps that hold unless it is renewed.
func readBusy(list []wire.Reply) (driver.Status, error) {
	isRecord, err1 := list[2].Int()
	left, err2 := list[3].Int()
	if err1 != nil || err2 != nil || left > maxRecheck {
		return driver.Status{}, unreadable("hold")
	}
	holder := list[1:3]
	if isRecord != 1 {
		holder = list[1:2]
	}
	meta, err := readHolder(holder)
	if err != nil {
		return driver.Status{}, err
	}
	return driver.Status{State: driver.Gone, Holder: meta, Recheck: time.Duration(max(left, 0)) * time.Millisecond}, nil
}

// readHolder reads the holder's metadata, or the record that contains them.
func readHolder(list []wire.Reply) (string, error) {
	text, err := list[0].Text()
	if err != nil {
		return "", unreadable("holder")
	}
	if len(list) == 1 {
		return text, nil
	}
	_, meta, err := parseHold(text)
	return meta, err
}

// maxRecheck bounds the recheck that a server may give, in milliseconds.
const maxRecheck = int64(10 * MaxTTL / time.Millisecond)

func unreadable(format string, args ...any) error {
	return driver.Wrap(driver.Unknown, fmt.Errorf("%w: %s", errAnswer, fmt.Sprintf(format, args...)))
}
