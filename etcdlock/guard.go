package etcdlock

import (
	"github.com/holdfast-go/holdfast/driver"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// guards are what every new place depends on: the key is not there, the ticket
// has no tombstone, and the line has no place of another limit.
func (d *Driver) guards(p *place) []*pb.Compare {
	cmp := []*pb.Compare{absent(p.key), absent(d.keys.tomb(p.t.ID))}
	for _, r := range others(p.line, p.t.Limit) {
		cmp = append(cmp, empty(r[0], r[1]))
	}
	return cmp
}

// reasons are what is read when the guards forbid a place; refusal understands
// it.
func (d *Driver) reasons(p *place) []*pb.RequestOp {
	ops := []*pb.RequestOp{
		opGet(getKey(d.keys.tomb(p.t.ID))), opGet(get(p.key)), opGet(limit(inOrder(p.line), 1)),
	}
	for _, r := range others(p.line, p.t.Limit) {
		ops = append(ops, opGet(limit(all(r[0], r[1]), 1)))
	}
	return ops
}

// refusal says why the guards forbade a place. None of the reasons may hold
// any more, or the place is there: then the caller goes on.
func (d *Driver) refusal(p *place, resp *pb.TxnResponse) (r joined, err error) {
	if one(resp, 0) != nil {
		d.mu.Lock()
		d.graves.add(p.t.ID)
		d.mu.Unlock()
		return joined{absent: true, state: driver.Gone}, nil
	}
	if kv := one(resp, 1); kv != nil {
		if string(kv.Value) == p.value {
			return joined{rev: kv.CreateRevision}, nil
		}
		// The key is another ticket's, whose end the driver has not seen.
		d.mu.Lock()
		d.rename(p)
		d.mu.Unlock()
		return joined{again: true}, nil
	}
	if kv := one(resp, 2); kv != nil {
		first, err := parse(p.line, kv, false)
		if err != nil {
			return r, driver.Wrap(driver.Refused, err)
		}
		r.first = &first
	}
	for i := range others(p.line, p.t.Limit) {
		if kv := one(resp, 3+i); kv != nil {
			e, err := parse(p.line, kv, false)
			if err != nil {
				return r, driver.Wrap(driver.Refused, err)
			}
			return r, &driver.LimitError{Name: p.t.Name, Have: e.limit, Want: p.t.Limit}
		}
	}
	return r, nil
}

// rename gives a ticket the long form of its key. The caller has mu.
func (d *Driver) rename(p *place) {
	d.unhouse(p)
	p.key = placeKey(p.line, p.t.Limit, p.t.Units, p.sess.hex, p.t.ID)
	d.byKey[p.key] = append(d.byKey[p.key], p)
}
