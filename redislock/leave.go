package redislock

import (
	"context"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/redislock/internal/link"
)

// Leave implements [driver.Driver]: a script for each ticket, all sent at once.
func (d *Driver) Leave(ctx context.Context, refs []driver.Ref) ([]driver.Status, error) {
	if err := d.checkOpen(ctx); err != nil {
		return nil, err
	}
	if d.confirms != nil {
		defer d.confirms.forget(refs)
	}
	return d.leave(ctx, refs)
}

func (d *Driver) leave(ctx context.Context, refs []driver.Ref) ([]driver.Status, error) {
	places := make([]driver.Status, len(refs))
	if len(refs) == 1 {
		var b leaveArgs
		l, args := d.keys.get(refs[0].Name), b.of(&refs[0])
		m, err := d.call(ctx, d.scripts.leave, false, l, args...)
		if noScript(err) {
			m, err = d.call(ctx, d.scripts.leave, true, l, args...)
		}
		places[0] = readLeft(&m, err)
		return places, nil
	}
	for from := 0; from < len(refs); from += maxBatch {
		to := min(from+maxBatch, len(refs))
		d.leaveBatch(ctx, refs[from:to], places[from:to])
	}
	return places, nil
}

func (d *Driver) leaveBatch(ctx context.Context, refs []driver.Ref, places []driver.Status) {
	replies, err := onControl(ctx, d, func(c link.Conn) ([]link.Reply, error) {
		runs := make([]run, len(refs))
		for i := range refs {
			var b leaveArgs
			runs[i] = run{d.scripts.leave, d.keys.get(refs[i].Name).all(), b.of(&refs[i])}
		}
		return runAll(c, runs)
	})
	for i := range places {
		if err != nil {
			places[i] = driver.Status{Err: err}
			continue
		}
		places[i] = readLeft(&replies[i], classify(replies[i].Err))
	}
}

// leaveArgs has room for the arguments of one leave.
type leaveArgs [3]string

func (b *leaveArgs) of(r *driver.Ref) []string {
	*b = leaveArgs{r.ID, yes(plain(r.Ticket)), "1"}
	if r.JoinPending {
		return b[:3]
	}
	return b[:2]
}

// readLeft reads the answer of the leave script: the state in which it found
// the ticket.
func readLeft(m *link.Reply, err error) driver.Status {
	if err != nil {
		return driver.Status{Err: err}
	}
	n, err := m.Int()
	if err != nil {
		if list, err := m.List(); err == nil && len(list) == 1 {
			return driver.Status{Err: driver.Wrap(driver.Refused, errForeign)}
		}
		return driver.Status{Err: unreadable("no state")}
	}
	switch s := driver.State(n); s {
	case driver.Waiting, driver.Held, driver.Gone:
		return driver.Status{State: s}
	}
	return driver.Status{Err: unreadable("state %d", n)}
}
