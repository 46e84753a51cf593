package etcdlock

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

// queueView is a queue as the store has it: the places in order, and the tickets
// of named owners' places.
type queueView struct {
	*requests
	name    string
	places  []entry
	members map[string][]*mvccpb.KeyValue // by owner, oldest first
}

func (r *requests) viewQueue(ctx context.Context, name string) (queueView, error) {
	queue, members := r.keys.queue(name), r.keys.members(name, "")
	byAge := all(members, after(members))
	byAge.SortTarget, byAge.SortOrder = pb.RangeRequest_CREATE, pb.RangeRequest_ASCEND
	resp, err := r.txn(ctx, nil, []*pb.RequestOp{opGet(inOrder(queue)), opGet(byAge)}, nil)
	if err != nil {
		return queueView{}, readOnly(err)
	}
	v := queueView{requests: r, name: name, members: make(map[string][]*mvccpb.KeyValue)}
	if v.places, err = parseAll(queue, kvs(resp, 0), false); err != nil {
		return v, err
	}
	for _, kv := range kvs(resp, 1) {
		if member, ours := decode(kv.Value); ours {
			v.members[member.owner] = append(v.members[member.owner], kv)
		}
	}
	return v, nil
}

// Inspect implements [driver.Driver]. The id of a foreign client's place is its
// lease, in hex. Inspect asks for the time left of each lease, besides the one
// request that reads the queue.
func (d *Driver) Inspect(ctx context.Context, name string) (driver.Queue, error) {
	queue := driver.Queue{Name: name}
	if err := d.life.checkOpen(ctx); err != nil {
		return queue, err
	}
	v, err := d.viewQueue(ctx, name)
	if err != nil || len(v.places) == 0 {
		return queue, err
	}
	queue.Limit = v.places[0].limit
	held := holding(v.places)
	var leases []int64
	for i, e := range v.places {
		entry := driver.Entry{ID: e.id, Owner: e.owner, State: driver.Waiting, Units: e.units, Meta: e.meta}
		if i < held {
			entry.State, entry.Token = driver.Held, uint64(e.rev)
			queue.Token = max(queue.Token, entry.Token)
		}
		if e.ours && e.id == "" { // the place of a named owner
			for _, kv := range v.members[e.owner] {
				r, _ := decode(kv.Value)
				entry.ID, entry.Meta = r.id, r.meta
				queue.Tickets = append(queue.Tickets, entry)
				leases = append(leases, kv.Lease)
			}
			continue
		}
		if !e.ours {
			entry.ID = hex(e.lease)
		}
		queue.Tickets = append(queue.Tickets, entry)
		leases = append(leases, e.lease)
	}
	left, err := d.remainingTTLs(ctx, leases)
	if err != nil {
		return driver.Queue{Name: name}, err
	}
	for i := range queue.Tickets {
		queue.Tickets[i].Left = left[leases[i]]
	}
	return queue, nil
}

// remainingTTLs asks the server for the time that leases have left.
func (c *cluster) remainingTTLs(ctx context.Context, leases []int64) (map[int64]time.Duration, error) {
	left := make(map[int64]time.Duration)
	ids := slices.Compact(slices.Sorted(slices.Values(leases)))
	var mu sync.Mutex
	var first error
	inParallel(len(ids), 8, func(i int) {
		resp, err := c.leases.LeaseTimeToLive(ctx, &pb.LeaseTimeToLiveRequest{ID: ids[i]})
		mu.Lock()
		defer mu.Unlock()
		if err = classed(ctx, err); err == nil {
			left[ids[i]] = time.Duration(resp.TTL) * time.Second
		} else if !noLease(err) {
			first = err
		}
	})
	return left, first
}

// Break implements [driver.Driver]. One transaction removes the place, makes a
// tombstone that keeps its ticket from coming back, and notifies its client; a
// second one notifies the new holders. The id of a foreign ticket is its lease
// in hex, as Inspect shows it.
func (d *Driver) Break(ctx context.Context, name, ticketID string) error {
	if err := d.life.checkOpen(ctx); err != nil {
		return err
	}
	for range maxTries {
		v, err := d.viewQueue(ctx, name)
		if err != nil {
			return err
		}
		done, err := v.breakTicket(ctx, ticketID)
		if done || err != nil {
			return err
		}
	}
	return driver.Errorf(driver.NotDone, "gave up after %d attempts: the queue kept changing", maxTries)
}

// breakTicket breaks a ticket. It returns false if the queue has changed.
func (v queueView) breakTicket(ctx context.Context, id string) (bool, error) {
	queue := v.keys.queue(v.name)
	for _, e := range v.places {
		if e.ours && e.id == "" {
			for _, kv := range v.members[e.owner] {
				if r, _ := decode(kv.Value); r.id == id {
					return v.breakMember(ctx, e.owner, id, kv)
				}
			}
			continue
		}
		if e.ours && e.id != id || !e.ours && hex(e.lease) != id {
			continue
		}
		ops := []*pb.RequestOp{opGet(inOrder(queue)), opDelete(e.key)}
		if e.ours {
			more, err := v.breakOps(ctx, id, e.key, e.rev, e.lease)
			if err != nil {
				return false, err
			}
			ops = append(ops, more...)
		}
		resp, err := v.txn(ctx, []*pb.Compare{createdIs(e.key, e.rev)}, ops, nil)
		if noLease(err) {
			return false, nil
		}
		if err != nil || !resp.Succeeded {
			return false, err
		}
		if es, err := parseAll(queue, kvs(resp, 0), false); err == nil {
			_, woken := departure(es, e.key)
			v.wake(ctx, queue, woken)
		}
		return true, nil
	}
	return false, &driver.Error{Class: driver.Refused, Err: driver.ErrNoTicket}
}

func (v queueView) breakMember(ctx context.Context, owner, id string, kv *mvccpb.KeyValue) (bool, error) {
	m, _, err := v.viewOwner(ctx, v.name, owner, string(kv.Key), "")
	if err != nil || m == nil || m.kv.CreateRevision != kv.CreateRevision {
		return false, err
	}
	more, err := v.breakOps(ctx, id, string(kv.Key), kv.CreateRevision, kv.Lease)
	if err != nil {
		return false, err
	}
	err = v.removeMember(ctx, v.name, owner, m, more)
	if noLease(err) {
		return false, nil
	}
	return err == nil, err
}

// breakOps returns the operations that go with the end of a broken ticket: a
// tombstone, and the message to its client.
func (r *requests) breakOps(ctx context.Context, id, key string, rev, lease int64) ([]*pb.RequestOp, error) {
	tombstoneLease, err := r.tombstones.leaseFor(ctx)
	if full(err) {
		return nil, nil
	}
	if err != nil {
		return nil, unsent(err)
	}
	return []*pb.RequestOp{
		opPut(r.keys.tomb(id), "", tombstoneLease),
		opPut(r.keys.wake(hex(lease)), message{gone: true, key: key, rev: rev}.encode(), lease),
	}, nil
}
