package etcdlock

import (
	"context"
	"fmt"
	"slices"

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

// owner takes or shares an owner's place.
func (j join) owner(ctx context.Context) (joined, error) {
	p := j.p
	index := j.keys.index(p.t.Name, p.t.Owner)
	resp, err := j.request(ctx, &pb.TxnRequest{Success: []*pb.RequestOp{
		opGet(getKey(j.keys.tomb(p.t.ID))), opGet(get(p.member)), opGet(get(index)), opGet(inOrder(p.queue)),
	}})
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
	if kv := one(resp, 2); kv != nil {
		if i := indexOf(es, string(kv.Value), kv.CreateRevision); i >= 0 {
			return j.shareOwner(ctx, es, i, one(resp, 1) != nil, index)
		}
		// The place is gone but its index is not. Both go with one lease or in
		// one transaction, so somebody deleted the place by hand.
		_, err := j.txn(ctx, []*pb.Compare{createdIs(index, kv.CreateRevision)}, []*pb.RequestOp{opDelete(index)}, nil)
		return joined{again: true}, err
	}
	if len(es) > 0 && es[0].limit != p.t.Limit {
		return joined{}, &driver.LimitError{Name: p.t.Name, Have: es[0].limit, Want: p.t.Limit}
	}
	mine := append(es[:len(es):len(es)], entry{units: p.t.Units, limit: p.t.Limit})
	if !j.wait && holding(mine) < len(mine) {
		return joined{absent: true, place: driver.Status{Holder: es[0].meta}}, nil
	}
	return j.makeOwner(ctx, resp.Header.Revision, index)
}

// makeOwner makes the place of an owner that has none.
func (j join) makeOwner(ctx context.Context, seen int64, index string) (joined, error) {
	p := j.p
	s, err := j.sessions.request(ctx, p.t.TTL, true)
	if err != nil {
		return joined{}, unsent(err)
	}
	key := recipe(p.queue, s.hex)
	if p.t.Limit > 1 {
		key = placeKey(p.queue, p.t.Limit, p.t.Units, s.hex, "=")
	}
	j.places.share(p, s, key)
	cmp := append(p.preconditions(), absent(index))
	if !j.wait {
		cmp = append(cmp, noneAfter(p.queue, seen))
	}
	value := record{owner: p.t.Owner, ttl: p.t.TTL}.encode()
	resp, err := j.txn(ctx, cmp, []*pb.RequestOp{
		opPut(key, value, s.id), opPut(index, key, s.id), opPut(p.member, p.value, p.sess.id), opGet(inOrder(p.queue)),
	}, nil)
	if err == nil && resp.Succeeded {
		es, err := parseAll(p.queue, kvs(resp, 3), false)
		if err != nil {
			return joined{}, err
		}
		j.places.setRev(p, resp.Header.Revision)
		return joinedAt(es, len(es)-1), nil
	}
	j.places.share(p, nil, "")
	if err != nil {
		// The transaction may have been carried out; then the next Join finds
		// the place.
		return joined{}, err
	}
	j.life.runBriefly(func(ctx context.Context) { j.revoke(ctx, s.id) })
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

// indexOf returns the index of the place with that key and create revision, or -1.
func indexOf(es []entry, key string, rev int64) int {
	return slices.IndexFunc(es, func(e entry) bool { return e.key == key && e.rev == rev })
}

// shareOwner takes a share in the owner's place at index i.
func (j join) shareOwner(ctx context.Context, es []entry, i int, member bool, index string) (joined, error) {
	p, e := j.p, es[i]
	switch {
	case e.limit != p.t.Limit:
		return joined{}, &driver.LimitError{Name: p.t.Name, Have: e.limit, Want: p.t.Limit}
	case p.t.Units > e.units:
		return joined{}, &driver.Error{Class: driver.Refused, Err: driver.ErrUpgrade}
	case leaseFor(e.ttl) < leaseFor(p.t.TTL):
		return joined{}, driver.Errorf(driver.Refused, "the owner's place has a TTL of %v, the ticket wants %v", e.ttl, p.t.TTL)
	case !j.wait && !member && i >= holding(es):
		return joined{absent: true, place: driver.Status{Holder: es[0].meta}}, nil
	}
	s, err := j.sessions.adopt(ctx, e.lease, e.ttl)
	if err == errOver {
		return joined{again: true}, nil
	}
	if err != nil {
		return joined{}, err
	}
	j.places.share(p, s, e.key)
	resp, err := j.txn(ctx, []*pb.Compare{createdIs(index, e.rev), createdIs(e.key, e.rev), absent(j.keys.tomb(p.t.ID)), absent(p.member)},
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
	j.places.setRev(p, rev)
	if es, err = parseAll(p.queue, kvs(resp, 1), false); err != nil {
		return joined{}, err
	}
	if i := indexOf(es, e.key, e.rev); i >= 0 {
		return joinedAt(es, i), nil
	}
	return joined{again: true}, nil
}

// leaveOwner gives up an owner's ticket, and with the last ticket the place.
func (r *requests) leaveOwner(ctx context.Context, p *place) (driver.State, error) {
	view, state, err := r.viewOwner(ctx, p.t.Name, p.t.Owner, p.member, p.value)
	if err != nil || view == nil {
		return driver.Gone, err
	}
	if err := r.removeMember(ctx, p.t.Name, p.t.Owner, view, nil); err != nil {
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
func (r *requests) viewOwner(ctx context.Context, name, owner, member, value string) (*memberView, driver.State, error) {
	queue := r.keys.queue(name)
	resp, err := r.txn(ctx, nil, []*pb.RequestOp{
		opGet(get(member)), opGet(get(r.keys.index(name, owner))), opGet(keysOnly(inOrder(queue))),
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
	switch i := indexOf(es, string(v.index.Value), v.index.CreateRevision); {
	case i < 0:
		return v, driver.Gone, nil
	case i < holding(es):
		return v, driver.Held, nil
	}
	return v, driver.Waiting, nil
}

// removeMember removes one ticket of an owner, and in the same transaction the
// place if the ticket is the last. The transaction includes more in both cases.
func (r *requests) removeMember(ctx context.Context, name, owner string, v *memberView, more []*pb.RequestOp) error {
	queue, key := r.keys.queue(name), string(v.kv.Key)
	there := createdIs(key, v.kv.CreateRevision)
	gone := append([]*pb.RequestOp{opDelete(key)}, more...)
	if v.index == nil {
		_, err := r.txn(ctx, []*pb.Compare{there}, gone, nil)
		return err
	}
	members := r.keys.members(name, owner)
	place := string(v.index.Value)
	last := []*pb.Compare{there, empty(members, key), empty(key+"\x00", after(members)),
		createdIs(string(v.index.Key), v.index.CreateRevision), createdIs(place, v.index.CreateRevision)}
	both := append([]*pb.RequestOp{opGet(inOrder(queue)), opDelete(place), opDelete(string(v.index.Key))}, gone...)
	resp, err := r.txn(ctx, last, both, []*pb.RequestOp{opTxn([]*pb.Compare{there}, gone, nil)})
	if err != nil || !resp.Succeeded {
		return err
	}
	if es, err := parseAll(queue, kvs(resp, 0), false); err == nil {
		_, woken := departure(es, place)
		r.wake(ctx, queue, woken)
	}
	if _, lease := leaseOf(place[len(queue):]); lease != 0 {
		r.life.runBriefly(func(ctx context.Context) { r.revoke(ctx, lease) })
	}
	return nil
}
