package etcdlock

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

// A named owner has one place in a queue, under a lease of its own, which every
// process with a ticket of the owner keeps alive. An index key under the same
// lease names the place. Each ticket has a member key, under the session of its
// own client. So the store counts the owner's tickets, the ticket of a dead
// client drops out by itself, and the transaction that removes the last ticket
// removes the place, too. If all clients die, all leases end.

// joinOwner takes or shares an owner's place.
func (d *Driver) joinOwner(ctx context.Context, p *place, wait bool, start time.Time) (joined, error) {
	d.mu.Lock()
	p.member = d.keys.members(p.t.Name, p.t.Owner) + plain.Encode(p.t.ID)
	d.mu.Unlock()
	index := d.keys.index(p.t.Name, p.t.Owner)
	ops := []*pb.RequestOp{opGet(getKey(d.keys.tomb(p.t.ID))), opGet(get(p.member)), opGet(get(index)), opGet(inOrder(p.queue))}
	resp, err := d.send(ctx, p.sess, nil, ops, nil)
	if err != nil {
		return joined{}, err
	}
	if one(resp, 0) != nil {
		return joined{absent: true, state: driver.Gone}, nil
	}
	es, err := parseAll(p.queue, kvs(resp, 3), false)
	if err != nil {
		return joined{}, fmt.Errorf("line %q: %w", p.t.Name, err)
	}
	member := one(resp, 1)
	if kv := one(resp, 2); kv != nil {
		for i := range es {
			if es[i].key == string(kv.Value) && es[i].rev == kv.CreateRevision {
				return d.shareOwner(ctx, p, wait, es, i, member, index)
			}
		}
		// The place is gone but its index is not. Both go with one lease or in
		// one transaction, so somebody deleted the place by hand.
		if _, err := d.txn(ctx, []*pb.Compare{createdIs(index, kv.CreateRevision)}, []*pb.RequestOp{opDelete(index)}, nil); err != nil {
			return joined{}, err
		}
		return joined{again: true}, nil
	}
	if len(es) > 0 && es[0].limit != p.t.Limit {
		return joined{}, &driver.LimitError{Name: p.t.Name, Have: es[0].limit, Want: p.t.Limit}
	}
	mine := append(es[:len(es):len(es)], entry{units: p.t.Units, limit: p.t.Limit})
	if !wait && holding(mine) < len(mine) {
		return joined{absent: true, place: driver.Status{Holder: es[0].meta}}, nil
	}
	return d.makeOwner(ctx, p, wait, resp.Header.Revision, index)
}

// makeOwner makes the place of an owner that has none.
func (d *Driver) makeOwner(ctx context.Context, p *place, wait bool, seen int64, index string) (joined, error) {
	s, err := d.openSession(ctx, p.t.TTL, true)
	if err != nil {
		return joined{}, unsent(err)
	}
	key := recipe(p.queue, s.hex)
	if p.t.Limit > 1 {
		key = placeKey(p.queue, p.t.Limit, p.t.Units, s.hex, "=")
	}
	d.mu.Lock()
	d.shareKeyLocked(p, s, key)
	d.mu.Unlock()
	cmp := append(d.preconditions(p), absent(index))
	if !wait {
		cmp = append(cmp, noneAfter(p.queue, seen))
	}
	value := record{owner: p.t.Owner, ttl: p.t.TTL}.encode()
	resp, err := d.txn(ctx, cmp, []*pb.RequestOp{
		opPut(key, value, s.id), opPut(index, key, s.id), opPut(p.member, p.value, p.sess.id), opGet(inOrder(p.queue)),
	}, nil)
	if err == nil && resp.Succeeded {
		es, err := parseAll(p.queue, kvs(resp, 3), false)
		if err != nil {
			return joined{}, err
		}
		d.mu.Lock()
		p.memberRev = resp.Header.Revision
		d.mu.Unlock()
		return joinedAt(es, len(es)-1), nil
	}
	d.mu.Lock()
	d.dropKeyLocked(p)
	p.key = ""
	d.mu.Unlock()
	if err != nil {
		// The transaction may have been carried out; then the next Join finds
		// the place.
		return joined{}, err
	}
	d.life.runBriefly(func(ctx context.Context) { d.revoke(ctx, s.id) })
	return joined{again: true}, nil
}

// joinedAt returns the status of the place at index i of a queue.
func joinedAt(es []entry, i int) joined {
	r := joined{rev: es[i].rev, state: driver.Held}
	if i >= holding(es) {
		r.state = driver.Waiting
		r.pred = &es[i-1]
		r.place = driver.Status{Ahead: i, Recheck: recheck(r.pred), Holder: es[0].meta}
	}
	return r
}

// shareOwner takes a share in the owner's place at index i.
func (d *Driver) shareOwner(ctx context.Context, p *place, wait bool, es []entry, i int, member *mvccpb.KeyValue, index string) (joined, error) {
	e := es[i]
	switch {
	case e.limit != p.t.Limit:
		return joined{}, &driver.LimitError{Name: p.t.Name, Have: e.limit, Want: p.t.Limit}
	case p.t.Units > e.units:
		return joined{}, &driver.Error{Class: driver.Refused, Err: driver.ErrUpgrade}
	case leaseFor(e.ttl) < leaseFor(p.t.TTL):
		return joined{}, driver.Errorf(driver.Refused, "the owner's place has a TTL of %v, the ticket wants %v", e.ttl, p.t.TTL)
	case !wait && member == nil && i >= holding(es):
		return joined{absent: true, place: driver.Status{Holder: es[0].meta}}, nil
	}
	s, err := d.adopt(ctx, e.lease, e.ttl)
	if err != nil {
		return joined{}, err
	}
	if s == nil {
		return joined{again: true}, nil
	}
	d.mu.Lock()
	d.shareKeyLocked(p, s, e.key)
	d.mu.Unlock()
	resp, err := d.txn(ctx, []*pb.Compare{createdIs(index, e.rev), createdIs(e.key, e.rev), absent(d.keys.tomb(p.t.ID)), absent(p.member)},
		[]*pb.RequestOp{opPut(p.member, p.value, p.sess.id), opGet(inOrder(p.queue))},
		[]*pb.RequestOp{opGet(getKey(p.member)), opGet(inOrder(p.queue))})
	if err != nil {
		return joined{}, err
	}
	rev := resp.Header.Revision
	if !resp.Succeeded {
		kv := one(resp, 0)
		if kv == nil {
			return joined{again: true}, nil
		}
		rev = kv.CreateRevision // an earlier request took the share
	}
	d.mu.Lock()
	p.memberRev = rev
	d.mu.Unlock()
	es, err = parseAll(p.queue, kvs(resp, 1), false)
	if err != nil {
		return joined{}, err
	}
	for i := range es {
		if es[i].key == e.key && es[i].rev == e.rev {
			return joinedAt(es, i), nil
		}
	}
	return joined{again: true}, nil
}

// adopt keeps a lease alive that another process may have requested. It returns
// nil if the lease is over.
func (d *Driver) adopt(ctx context.Context, lease int64, ttl time.Duration) (*session, error) {
	d.mu.Lock()
	s := d.leased[lease]
	if s == nil {
		s = d.newSession(ttl, lease, leaseFor(ttl), true)
		d.leased[lease] = s
	}
	d.mu.Unlock()
	if _, err := d.awaitWatch(ctx, s); err != nil {
		return nil, unsent(err)
	}
	if _, err := d.promise(ctx, s, time.Now()); err == errOver {
		return nil, nil
	} else if err != nil {
		return nil, unsent(err)
	}
	return s, nil
}

// leaveOwner gives up an owner's ticket, and with the last ticket the place.
func (d *Driver) leaveOwner(ctx context.Context, p *place) (driver.State, error) {
	view, state, err := d.viewOwner(ctx, p.t.Name, p.t.Owner, p.member, p.value)
	if err != nil || view == nil {
		return driver.Gone, err
	}
	if err := d.removeMember(ctx, p.t.Name, p.t.Owner, view, nil); err != nil {
		return 0, err
	}
	return state, nil
}

// memberView is one ticket of an owner, as the store has it.
type memberView struct {
	kv    *mvccpb.KeyValue
	index *mvccpb.KeyValue // nil if the owner's place is gone
}

// viewOwner returns a ticket of an owner and the state of the owner's place.
// The ticket is nil if it is gone.
func (d *Driver) viewOwner(ctx context.Context, name, owner, member, value string) (*memberView, driver.State, error) {
	queue := d.keys.queue(name)
	resp, err := d.txn(ctx, nil, []*pb.RequestOp{
		opGet(get(member)), opGet(get(d.keys.index(name, owner))), opGet(keysOnly(inOrder(queue))),
	}, nil)
	if err != nil {
		return nil, 0, err
	}
	v := &memberView{kv: one(resp, 0), index: one(resp, 1)}
	if v.kv == nil || value != "" && string(v.kv.Value) != value {
		return nil, driver.Gone, nil
	}
	if v.index == nil {
		return v, driver.Gone, nil
	}
	es, err := parseAll(queue, kvs(resp, 2), true)
	if err != nil {
		return nil, 0, err
	}
	for i, e := range es {
		if e.key == string(v.index.Value) && e.rev == v.index.CreateRevision {
			if i < holding(es) {
				return v, driver.Held, nil
			}
			return v, driver.Waiting, nil
		}
	}
	return v, driver.Gone, nil
}

// removeMember removes one ticket of an owner, and in the same transaction the
// place if the ticket is the last. The transaction includes more in both cases.
func (d *Driver) removeMember(ctx context.Context, name, owner string, v *memberView, more []*pb.RequestOp) error {
	queue, key := d.keys.queue(name), string(v.kv.Key)
	there := createdIs(key, v.kv.CreateRevision)
	gone := append([]*pb.RequestOp{opDelete(key)}, more...)
	if v.index == nil {
		_, err := d.txn(ctx, []*pb.Compare{there}, gone, nil)
		return err
	}
	members := d.keys.members(name, owner)
	place := string(v.index.Value)
	last := []*pb.Compare{there, empty(members, key), empty(key+"\x00", after(members)),
		createdIs(string(v.index.Key), v.index.CreateRevision), createdIs(place, v.index.CreateRevision)}
	both := append([]*pb.RequestOp{opGet(inOrder(queue)), opDelete(place), opDelete(string(v.index.Key))}, gone...)
	resp, err := d.txn(ctx, last, both, []*pb.RequestOp{opTxn([]*pb.Compare{there}, gone, nil)})
	if err != nil || !resp.Succeeded {
		return err
	}
	if es, err := parseAll(queue, kvs(resp, 0), false); err == nil {
		_, woken := departure(es, place)
		d.wake(ctx, queue, woken)
	}
	if _, lease := leaseOf(place[len(queue):]); lease != 0 {
		d.life.runBriefly(func(ctx context.Context) { d.revoke(ctx, lease) })
	}
	return nil
}
