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

// Renew implements [driver.Driver]: one script for all, up to 256 tickets; in a
// cluster one for each slot, all sent at once. When a mutex was lost, another
// one follows, which advances the lines concerned.
func (d *Driver) Renew(ctx context.Context, refs []driver.Ref) ([]driver.Place, error) {
	if err := d.before(ctx); err != nil {
		return nil, err
	}
	places := make([]driver.Place, len(refs))
	var quick, other []int
	for i := range refs {
		if r := &refs[i]; plain(r.Ticket) && r.State != driver.Waiting {
			quick = append(quick, i)
		} else {
			other = append(other, i)
		}
	}
	if lost := d.renew(ctx, refs, places, d.batches(refs, quick, other)); len(lost) > 0 {
		d.renew(ctx, refs, places, d.batches(refs, nil, lost))
	}
	if d.confirms != nil {
		d.confirmAll(ctx, refs, places)
	}
	for i := range places {
		places[i] = d.paced(places[i])
	}
	return places, nil
}

// A batch is the tickets of one script, by their index: those that probably
// hold a mutex, and the others.
type batch struct{ quick, other []int }

func (b *batch) order() []int { return append(b.quick[:len(b.quick):len(b.quick)], b.other...) }

// batches sorts tickets by what one script may be about: one slot, and not too
// many tickets.
func (d *Driver) batches(refs []driver.Ref, quick, other []int) []*batch {
	var all []*batch
	open := make(map[int]*batch) // by slot
	of := func(i int) *batch {
		slot := 0
		if d.lines.sharded {
			slot = d.lines.get(refs[i].Name).slot
		}
		b := open[slot]
		if b == nil || len(b.quick)+len(b.other) == maxBatch {
			b = new(batch)
			open[slot] = b
			all = append(all, b)
		}
		return b
	}
	for _, i := range quick {
		b := of(i)
		b.quick = append(b.quick, i)
	}
	for _, i := range other {
		b := of(i)
		b.other = append(b.other, i)
	}
	return all
}

// renew renews the tickets of batches and returns those of the first kind that
// hold nothing.
func (d *Driver) renew(ctx context.Context, refs []driver.Ref, places []driver.Place, all []*batch) (lost []int) {
	replies, err := beside(ctx, d, func(c link.Conn) ([]link.Reply, error) {
		runs := make([]run, len(all))
		for i, b := range all {
			runs[i] = d.renewal(refs, b)
		}
		return runAll(c, runs)
	})
	var alone []*batch
	for n, b := range all {
		failed := err
		if failed == nil {
			failed = classify(replies[n].Err)
		}
		if moving(failed) && len(b.quick) > 0 && len(b.quick)+len(b.other) > 1 {
			// Those that hold have one key each, and one key is served where it
			// is while a slot is moved.
			for _, i := range b.quick {
				alone = append(alone, &batch{quick: []int{i}})
			}
			if len(b.other) > 0 {
				alone = append(alone, &batch{other: b.other})
			}
			continue
		}
		lost = append(lost, read(refs, places, b, &replies, n, failed)...)
	}
	if len(alone) > 0 {
		lost = append(lost, d.renew(ctx, refs, places, alone)...)
	}
	return lost
}

// renewal is the script that renews a batch.
func (d *Driver) renewal(refs []driver.Ref, b *batch) run {
	keys := make([]string, 0, len(b.quick)+numKeys*len(b.other)+1)
	args := make([]string, 1, 1+2*(len(b.quick)+len(b.other)))
	args[0] = strconv.Itoa(len(b.quick))
	for _, i := range b.quick {
		keys = append(keys, lineKey(d.lines.prefix, refs[i].Name))
	}
	none := ""
	for _, i := range b.other {
		l := d.lines.make(refs[i].Name)
		keys, none = append(keys, l.keys[:]...), l.none
	}
	if none != "" {
		keys = append(keys, none) // see line
	}
	for _, i := range b.order() {
		args = append(args, refs[i].ID, d.keep(refs[i].TTL))
	}
	return run{d.scripts.renew, keys, args}
}

// read takes in what became of the batch n.
func read(refs []driver.Ref, places []driver.Place, b *batch, replies *[]link.Reply, n int, err error) (lost []int) {
	var answers []link.Reply
	order := b.order()
	if err == nil {
		if answers, err = (*replies)[n].List(); err != nil || len(answers) != len(order) {
			err = unreadable("%d answers for %d tickets", len(answers), len(order))
		}
	}
	for n, i := range order {
		if err != nil {
			places[i] = driver.Place{Err: err}
			continue
		}
		if n < len(b.quick) {
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

// renewAhead renews a mutex whose key has been moved ahead of its slot.
func (d *Driver) renewAhead(ctx context.Context, r driver.Ref) driver.Place {
	refs, places := []driver.Ref{r}, make([]driver.Place, 1)
	b := &batch{quick: []int{0}}
	replies, err := beside(ctx, d, func(c link.Conn) ([]link.Reply, error) {
		s := d.renewal(refs, b)
		replies := c.Pipe([][]string{{"ASKING"}, s.script.words(true, s.keys, s.args)})[1:]
		if broken(replies[0].Err) {
			return replies, replies[0].Err
		}
		return replies, nil
	})
	if err == nil {
		err = classify(replies[0].Err)
	}
	if lost := read(refs, places, b, &replies, 0, err); len(lost) > 0 {
		// It is neither here nor there, which only all keys together tell.
		places[0] = driver.Place{Err: driver.Errorf(driver.Unavailable, "the slot is being moved")}
	}
	return places[0]
}
