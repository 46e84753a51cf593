package etcdlock

import (
	"context"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// tombstoneTTL is the life of a tombstone, at the store and in the driver.
const tombstoneTTL = time.Minute

// tombstones makes the tombstones at the store: no Join of their tickets that is
// carried out later has an effect. They have a lease that outlasts every request.
type tombstones struct {
	*cluster
	places *places

	mu    sync.Mutex // none is taken under it
	lease int64
	asked time.Time // when the lease was requested
}

// add makes the tombstone of a ticket, at the store and in the driver. A full store accepts no tombstone, and no
// Join either.
func (t *tombstones) add(ctx context.Context, id string) error {
	lease, err := t.leaseFor(ctx)
	if err == nil {
		if _, err = t.txn(ctx, nil, []*pb.RequestOp{opPut(t.keys.tomb(id), "", lease)}, nil); noLease(err) {
			t.setLease(0, time.Time{})
		}
	}
	if err != nil && !full(err) {
		return err
	}
	t.places.addTombstone(id)
	return nil
}

// leaseFor returns a lease that lasts for at least tombstoneTTL.
func (t *tombstones) leaseFor(ctx context.Context) (int64, error) {
	t.mu.Lock()
	lease, asked := t.lease, t.asked
	t.mu.Unlock()
	if lease != 0 && since(asked) < tombstoneTTL/2 {
		return lease, nil
	}
	asked = time.Now()
	resp, err := t.grant(ctx, 2*tombstoneTTL)
	if err != nil {
		return 0, err
	}
	t.setLease(resp.ID, asked)
	return resp.ID, nil
}

func (t *tombstones) setLease(lease int64, asked time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lease, t.asked = lease, asked
}
