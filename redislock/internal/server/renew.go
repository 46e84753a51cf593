package server

import (
	"context"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/redislock/internal/client"
	"github.com/holdfast-go/holdfast/redislock/internal/wire"
)

// Renew implements the method of [driver.Driver].
func (d *Driver) Renew(ctx context.Context, refs []driver.Ref) ([]driver.Status, error) {
	if err := d.CheckOpen(ctx); err != nil {
		return nil, err
	}
	places := make([]driver.Status, len(refs))
	if lost := d.renew(ctx, refs, places, d.requests.Batches(refs)); len(lost) > 0 {
		d.renew(ctx, refs, places, d.requests.BatchesOf(refs, nil, lost))
	}
	if d.Confirms != nil {
		d.Confirms.confirmAll(ctx, d, refs, places)
		d.Confirms.forgetGone(refs, places)
	}
	for i := range places {
		places[i] = d.paced(places[i])
	}
	return places, nil
}

// renew renews the tickets of batches, and returns those of the first kind
// that hold nothing.
func (d *Driver) renew(ctx context.Context, refs []driver.Ref, places []driver.Status, all []*wire.Batch) (lost []int) {
	replies, err := onControl(ctx, d, func(c client.Conn) ([]wire.Reply, error) {
		runs := make([]wire.Run, len(all))
		for i, b := range all {
			runs[i] = d.requests.Renewal(refs, b)
		}
		return runAll(c, runs)
	})
	var retry []*wire.Batch
	for n, b := range all {
		reply, failed := new(wire.Reply), err
		if failed == nil {
			reply, failed = &replies[n], Classify(replies[n].Err)
		}
		if wire.IsMoving(failed) && len(b.Fast) > 0 && b.Len() > 1 {
			// A holder has one key, and a single key is served where it is
			// while a slot is moved.
			for _, i := range b.Fast {
				retry = append(retry, &wire.Batch{Fast: []int{i}})
			}
			if len(b.Other) > 0 {
				retry = append(retry, &wire.Batch{Other: b.Other})
			}
			continue
		}
		lost = append(lost, b.Read(refs, places, reply, failed)...)
	}
	if len(retry) > 0 {
		lost = append(lost, d.renew(ctx, refs, places, retry)...)
	}
	return lost
}

// RenewAhead renews a mutex whose key has been moved ahead of its slot.
func (d *Driver) RenewAhead(ctx context.Context, r driver.Ref) driver.Status {
	refs, places := []driver.Ref{r}, make([]driver.Status, 1)
	b := &wire.Batch{Fast: []int{0}}
	replies, err := onControl(ctx, d, func(c client.Conn) ([]wire.Reply, error) {
		s := d.requests.Renewal(refs, b)
		replies := c.Pipe([][]string{{"ASKING"}, s.Words(true)})[1:]
		if Broken(replies[0].Err) {
			return replies, replies[0].Err
		}
		return replies, nil
	})
	reply := new(wire.Reply)
	if err == nil {
		reply, err = &replies[0], Classify(replies[0].Err)
	}
	if lost := b.Read(refs, places, reply, err); len(lost) > 0 {
		// The key is at neither node, and only a request with all keys can
		// tell more.
		places[0] = driver.Status{Err: driver.Errorf(driver.Unavailable, "the slot is being moved")}
	}
	return places[0]
}
