package redislock

import (
	"context"
	"strconv"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/redislock/internal/client"
	"github.com/holdfast-go/holdfast/redislock/internal/wire"
)

// maxBatch bounds the tickets of one script, because a script delays all other
// requests while it runs.
const maxBatch = 256

// Renew implements [driver.Driver]: one script renews up to 256 tickets; in a
// cluster there is one for each slot, all sent at once. When a mutex was lost,
// another script follows, which advances the queues concerned.
func (d *Driver) Renew(ctx context.Context, refs []driver.Ref) ([]driver.Status, error) {
	if err := d.checkOpen(ctx); err != nil {
		return nil, err
	}
	places := make([]driver.Status, len(refs))
	var fast, other []int
	for i := range refs {
		if r := &refs[i]; wire.IsMutex(r.Ticket) && r.State != driver.Waiting {
			fast = append(fast, i)
		} else {
			other = append(other, i)
		}
	}
	if lost := d.renew(ctx, refs, places, d.batches(refs, fast, other)); len(lost) > 0 {
		d.renew(ctx, refs, places, d.batches(refs, nil, lost))
	}
	if d.confirms != nil {
		d.confirmAll(ctx, refs, places)
		d.confirms.forgetGone(refs, places)
	}
	for i := range places {
		places[i] = d.paced(places[i])
	}
	return places, nil
}

// A batch is the set of tickets of one script, by their index: first those
// that probably hold a mutex, then the others.
type batch struct{ fast, other []int }

func (b *batch) order() []int { return append(b.fast[:len(b.fast):len(b.fast)], b.other...) }

// batches divides tickets so that each script is about one slot, and not too
// many tickets.
func (d *Driver) batches(refs []driver.Ref, fast, other []int) []*batch {
	var all []*batch
	open := make(map[int]*batch) // by slot
	of := func(i int) *batch {
		slot := 0
		if d.keys.Sharded {
			slot = d.keys.Get(refs[i].Name).Slot
		}
		b := open[slot]
		if b == nil || len(b.fast)+len(b.other) == maxBatch {
			b = new(batch)
			open[slot] = b
			all = append(all, b)
		}
		return b
	}
	for _, i := range fast {
		b := of(i)
		b.fast = append(b.fast, i)
	}
	for _, i := range other {
		b := of(i)
		b.other = append(b.other, i)
	}
	return all
}

// renew renews the tickets of batches, and returns those of the first kind
// that hold nothing.
func (d *Driver) renew(ctx context.Context, refs []driver.Ref, places []driver.Status, all []*batch) (lost []int) {
	replies, err := onControl(ctx, d, func(c client.Conn) ([]wire.Reply, error) {
		runs := make([]run, len(all))
		for i, b := range all {
			runs[i] = d.renewal(refs, b)
		}
		return runAll(c, runs)
	})
	var retry []*batch
	for n, b := range all {
		failed := err
		if failed == nil {
			failed = classify(replies[n].Err)
		}
		if wire.IsMoving(failed) && len(b.fast) > 0 && len(b.fast)+len(b.other) > 1 {
			// A holder has one key, and a single key is served where it is
			// while a slot is moved.
			for _, i := range b.fast {
				retry = append(retry, &batch{fast: []int{i}})
			}
			if len(b.other) > 0 {
				retry = append(retry, &batch{other: b.other})
			}
			continue
		}
		lost = append(lost, readRenewals(refs, places, b, &replies, n, failed)...)
	}
	if len(retry) > 0 {
		lost = append(lost, d.renew(ctx, refs, places, retry)...)
	}
	return lost
}

// renewal returns the script that renews a batch.
func (d *Driver) renewal(refs []driver.Ref, b *batch) run {
	keys := make([]string, 0, len(b.fast)+wire.OwnKeys*len(b.other)+2)
	args := make([]string, 1, 1+2*(len(b.fast)+len(b.other)))
	args[0] = strconv.Itoa(len(b.fast))
	for _, i := range b.fast {
		keys = append(keys, wire.HoldersKey(d.keys.Prefix, refs[i].Name))
	}
	var l *wire.QueueKeys
	for _, i := range b.other {
		l = d.keys.Make(refs[i].Name)
		keys = append(keys, l.Keys[:wire.OwnKeys]...)
	}
	if l != nil { // the batch's tickets have these in common
		keys = append(keys, l.All()[wire.OwnKeys:]...)
	}
	for _, i := range b.order() {
		args = append(args, refs[i].ID, d.keep(refs[i].TTL))
	}
	return run{d.scripts.Renew, keys, args}
}

// readRenewals records the results of batch n.
func readRenewals(refs []driver.Ref, places []driver.Status, b *batch, replies *[]wire.Reply, n int, err error) (lost []int) {
	var answers []wire.Reply
	order := b.order()
	if err == nil {
		if answers, err = (*replies)[n].List(); err != nil || len(answers) != len(order) {
			err = wire.Unreadable("%d answers for %d tickets", len(answers), len(order))
		}
	}
	for n, i := range order {
		if err != nil {
			places[i] = driver.Status{Err: err}
			continue
		}
		if n < len(b.fast) {
			if token, err := answers[n].Int(); err == nil && token == 0 {
				lost = append(lost, i)
				continue
			}
		}
		p, err := wire.ReadStatus(&answers[n], refs[i].Ticket)
		if err != nil {
			p = driver.Status{Err: err}
		}
		places[i] = p
	}
	return lost
}

// renewAhead renews a mutex whose key has been moved ahead of its slot.
func (d *Driver) renewAhead(ctx context.Context, r driver.Ref) driver.Status {
	refs, places := []driver.Ref{r}, make([]driver.Status, 1)
	b := &batch{fast: []int{0}}
	replies, err := onControl(ctx, d, func(c client.Conn) ([]wire.Reply, error) {
		s := d.renewal(refs, b)
		replies := c.Pipe([][]string{{"ASKING"}, s.script.Words(true, s.keys, s.args)})[1:]
		if broken(replies[0].Err) {
			return replies, replies[0].Err
		}
		return replies, nil
	})
	if err == nil {
		err = classify(replies[0].Err)
	}
	if lost := readRenewals(refs, places, b, &replies, 0, err); len(lost) > 0 {
		// The key is at neither node, and only a request with all keys can
		// tell more.
		places[0] = driver.Status{Err: driver.Errorf(driver.Unavailable, "the slot is being moved")}
	}
	return places[0]
}
