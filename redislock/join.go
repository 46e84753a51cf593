package redislock

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/redislock/internal/link"
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

var errSpent = driver.Errorf(driver.Refused, "the line has no more tokens")

// plain says whether the ticket is an ordinary mutex, held in one key.
func plain(t *driver.Ticket) bool { return t.Limit == 1 && t.Owner == "" }

// Join implements [driver.Driver]. Limits above 2^53 - 1 are refused.
func (d *Driver) Join(ctx context.Context, t *driver.Ticket, wait bool) (driver.Place, error) {
	if err := d.before(ctx); err != nil {
		return driver.Place{}, err
	}
	if t.Limit > maxUnits {
		return driver.Place{}, driver.Errorf(driver.Refused, "limit %d is above %d, the most that Redis counts exactly", t.Limit, maxUnits)
	}
	if d.confirms != nil && wait {
		d.confirms.awaits(t) // a push may come before the answer
	}
	p, err := d.join(ctx, t, wait)
	if err == nil {
		p, err = d.confirmed(ctx, t, p)
	}
	if d.confirms != nil && (err != nil && driver.ClassOf(err) != driver.Unknown || p.State == driver.Gone) {
		d.confirms.settled(t.ID)
	}
	return p, err
}

func (d *Driver) join(ctx context.Context, t *driver.Ticket, wait bool) (driver.Place, error) {
	l := d.lines.get(t.Name)
	s, err := d.joinBy(ctx, t, nil)
	if err != nil {
		return driver.Place{}, err
	}
	var b joinArgs
	args := b.of(d, l, t, wait)
	m, err := d.call(ctx, s, false, l, args...)
	if noScript(err) {
		if s, err = d.joinBy(ctx, t, s); err != nil {
			return driver.Place{}, err
		}
		m, err = d.call(ctx, s, d.guard == nil, l, args...)
	}
	if err != nil {
		return driver.Place{}, err
	}
	p, err := readPlace(&m, t)
	if err == nil {
		err = p.Err
	}
	if err != nil {
		return driver.Place{}, err
	}
	return d.paced(p), nil
}

// The pace of those who are not told, and ask: the first who waits asks every
// paceFirst, the n-th every n × paceFirst, but at least every paceLast.
const (
	paceFirst = 20 * time.Millisecond
	paceLast  = 500 * time.Millisecond
)

// paced makes a waiting ticket whose client is not told ask in time.
func (d *Driver) paced(p driver.Place) driver.Place {
	if p.State == driver.Waiting && d.asks.Load() {
		pace := min(paceLast, paceFirst*time.Duration(max(1, min(p.Ahead, 1000))))
		if p.Recheck == 0 || p.Recheck > pace {
			p.Recheck = pace
		}
	}
	return p
}

// joinArgs has room for the arguments of a join.
type joinArgs [10]string

func (args *joinArgs) of(d *Driver, l *line, t *driver.Ticket, wait bool) []string {
	channel := l.channel
	if d.asks.Load() {
		channel = "" // the scripts grant to those who have none without telling them
	}
	*args = joinArgs{t.ID, d.keep(t.TTL), channel, t.Meta, yes(wait)}
	n := 5
	if t.Floor != 0 {
		n = 6
		args[5] = strconv.FormatUint(t.Floor, 10)
	}
	if !plain(t) || t.Replaces != nil {
		n = len(args)
		args[5] = strconv.FormatUint(t.Floor, 10)
		args[6] = strconv.FormatInt(t.Limit, 10)
		args[7] = strconv.FormatInt(t.Units, 10)
		args[8] = t.Owner
		if t.Replaces != nil {
			args[9] = t.Replaces.ID
		}
	}
	return args[:n]
}

func yes(b bool) string {
	if b {
		return "1"
	}
	return ""
}

// keepText is the milliseconds for which tickets of a TTL are kept.
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

// readPlace reads what the scripts say of a ticket.
func readPlace(m *link.Reply, t *driver.Ticket) (driver.Place, error) {
	if n, err := m.Int(); err == nil {
		if n <= 0 {
			return driver.Place{}, unreadable("token %d", n)
		}
		return driver.Place{State: driver.Held, Token: uint64(n), Lease: t.TTL}, nil
	}
	if text, err := m.Text(); err == nil { // an error of this ticket alone
		return driver.Place{Err: &driver.Error{Class: classOfAnswer(text), Err: fmt.Errorf("redis: %s", text)}}, nil
	}
	list, err := m.List()
	if err != nil || len(list) == 0 {
		return driver.Place{}, unreadable("no state")
	}
	code, err := list[0].Int()
	if err != nil {
		return driver.Place{}, unreadable("no state")
	}
	switch code {
	case int64(driver.Gone):
		p := driver.Place{State: driver.Gone}
		if len(list) > 1 {
			p.Holder, err = readHolder(list[1:])
		}
		return p, err
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
		return driver.Place{State: driver.Waiting, Lease: t.TTL, Ahead: int(ahead),
			Recheck: time.Duration(recheck) * time.Millisecond, Holder: holder}, nil
	case foreign:
		return driver.Place{Err: driver.Wrap(driver.Refused, errForeign)}, nil
	case mismatch:
		if len(list) < 2 {
			break
		}
		have, err := list[1].Int()
		if err != nil {
			break
		}
		return driver.Place{Err: &driver.LimitError{Name: t.Name, Have: have, Want: t.Limit}}, nil
	case upgrade:
		return driver.Place{Err: driver.ErrUpgrade}, nil
	case spent:
		return driver.Place{Err: errSpent}, nil
	}
	return driver.Place{}, unreadable("state %d of %d values", code, len(list))
}

// readHolder reads the holder's metadata, or the record that they are in.
func readHolder(list []link.Reply) (string, error) {
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

// maxRecheck bounds what is believed of a server, in milliseconds.
const maxRecheck = int64(10 * MaxTTL / time.Millisecond)

func unreadable(format string, args ...any) error {
	return driver.Wrap(driver.Unknown, fmt.Errorf("%w: %s", errAnswer, fmt.Sprintf(format, args...)))
}
