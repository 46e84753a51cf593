package etcdlock

import (
	"github.com/holdfast-go/holdfast/driver"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// preconditions returns the preconditions of a new place: its key does not exist, its
// ticket has no tombstone, and the queue has no place with another limit.
func (d *Driver) preconditions(p *place) []*pb.Compare {
	cmp := []*pb.Compare{absent(p.key), absent(d.keys.tomb(p.t.ID))}
	for _, r := range others(p.queue, p.t.Limit) {
		cmp = append(cmp, empty(r[0], r[1]))
	}
	return cmp
}

// conflictReads returns the reads that explain a failed precondition; refusal
// interprets their results.
func (d *Driver) conflictReads(p *place) []*pb.RequestOp {
	ops := []*pb.RequestOp{
		opGet(getKey(d.keys.tomb(p.t.ID))), opGet(get(p.key)), opGet(limit(inOrder(p.queue), 1)),
	}
	for _, r := range others(p.queue, p.t.Limit) {
		ops = append(ops, opGet(limit(all(r[0], r[1]), 1)))
	}
	return ops
}

// refusal returns the reason why a precondition failed. If no reason
// holds any longer, or the place exists, it returns no error, and the caller
// goes on.
func (d *Driver) refusal(p *place, resp *pb.TxnResponse) (r joined, err error) {
	if one(resp, 0) != nil {
		d.mu.Lock()
		d.tombstones.Add(p.t.ID)
		d.mu.Unlock()
		return joined{absent: true, state: driver.Gone}, nil
	}
	if kv := one(resp, 1); kv != nil {
		if string(kv.Value) == p.value {
			return joined{rev: kv.CreateRevision}, nil
		}
		// The key belongs to another ticket, and the driver has not seen its
		// end.
		d.mu.Lock()
		d.useLongKeyLocked(p)
		d.mu.Unlock()
		return joined{again: true}, nil
	}
	if kv := one(resp, 2); kv != nil {
		first, err := parse(p.queue, kv, false)
		if err != nil {
			return r, driver.Wrap(driver.Refused, err)
		}
		r.first = &first
	}
	for i := range others(p.queue, p.t.Limit) {
		if kv := one(resp, 3+i); kv != nil {
			e, err := parse(p.queue, kv, false)
			if err != nil {
				return r, driver.Wrap(driver.Refused, err)
			}
			return r, &driver.LimitError{Name: p.t.Name, Have: e.limit, Want: p.t.Limit}
		}
	}
	return r, nil
}

// useLongKeyLocked gives a ticket the long form of its key.
func (d *Driver) useLongKeyLocked(p *place) {
	d.dropKeyLocked(p)
	p.key = placeKey(p.queue, p.t.Limit, p.t.Units, p.sess.hex, p.t.ID)
	d.byKey[p.key] = append(d.byKey[p.key], p)
}
