package redislock

import (
	"context"
	"strconv"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/redislock/internal/link"
)

// maxBatch bounds the tickets of one script, which delays everybody else's
// requests while it runs.
const maxBatch = 256

// Renew implements [driver.Driver]: one script for all, up to 256 tickets. When
// a mutex was lost, another one follows, which advances the lines concerned.
func (d *Driver) Renew(ctx context.Context, refs []driver.Ref) ([]driver.Place, error) {
	if err := d.before(ctx); err != nil {
		return nil, err
	}
	places := make([]driver.Place, len(refs))
	for from := 0; from < len(refs); from += maxBatch {
		to := min(from+maxBatch, len(refs))
		d.renew(ctx, refs[from:to], places[from:to])
	}
	return places, nil
}

func (d *Driver) renew(ctx context.Context, refs []driver.Ref, places []driver.Place) {
	var quick, other []int
	for i := range refs {
		if r := &refs[i]; plain(r.Ticket) && r.State != driver.Waiting {
			quick = append(quick, i)
		} else {
			other = append(other, i)
		}
	}
	lost := d.renewBatch(ctx, refs, places, quick, other)
	if len(lost) > 0 {
		d.renewBatch(ctx, refs, places, nil, lost)
	}
}

// renewBatch renews the tickets at these indexes and returns those of the first
// kind that hold nothing.
func (d *Driver) renewBatch(ctx context.Context, refs []driver.Ref, places []driver.Place, quick, other []int) (lost []int) {
	keys := make([]string, 0, len(quick)+numKeys*len(other))
	args := make([]string, 1, 1+2*(len(quick)+len(other)))
	args[0] = strconv.Itoa(len(quick))
	for _, i := range quick {
		keys = append(keys, lineKey(d.lines.prefix, refs[i].Name))
		args = append(args, refs[i].ID, d.keep(refs[i].TTL))
	}
	for _, i := range other {
		keys = append(keys, newLine(d.lines.prefix, refs[i].Name).keys[:]...)
		args = append(args, refs[i].ID, d.keep(refs[i].TTL))
	}
	order := append(quick[:len(quick):len(quick)], other...)
	answers, err := beside(ctx, d, func(c link.Conn) ([]link.Reply, error) {
		m, err := runOn(c, d.scripts.renew, keys, args...)
		if err != nil {
			return nil, err
		}
		return m.List()
	})
	if err == nil && len(answers) != len(order) {
		err = unreadable("%d answers for %d tickets", len(answers), len(order))
	}
	for n, i := range order {
		if err != nil {
			places[i] = driver.Place{Err: err}
			continue
		}
		if n < len(quick) {
			if token, err := answers[n].Int(); err == nil && token == 0 {
				lost = append(lost, i)
				continue
			}
		}
		p, err := readPlace(&answers[n], refs[i].Ticket)
		if err != nil {
			p = driver.Place{Err: err}
		}
		places[i] = p
	}
	return lost
}
