package etcdlock

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/holdfast-go/holdfast/driver"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// leastOps is how many operations a transaction has to take: what cannot be
// split has six.
const leastOps = 8

// room is how many operations the servers take in one transaction, as far as
// is known: maxReads, until they have refused as many (--max-txn-ops).
type room struct{ n atomic.Int32 }

func (r *room) ops() int {
	if n := r.n.Load(); n > 0 {
		return int(n)
	}
	return maxReads
}

// refused says whether a request of n operations failed because these were too
// many, and should be tried again with as many as ops says now.
func (r *room) refused(err error, n int) bool {
	if !errors.Is(err, rpctypes.ErrTooManyOps) || n <= leastOps {
		return false
	}
	if fewer := max(leastOps, n/2); fewer < r.ops() {
		r.n.Store(int32(fewer))
	}
	return true
}

// measure finds out how many operations the servers take, by reads of a key
// that does not exist.
func (d *Driver) measure(ctx context.Context) error {
	for {
		ops := make([]*pb.RequestOp, d.room.ops())
		for i := range ops {
			ops[i] = opGet(getKey(d.keys.prefix + "%"))
		}
		_, err := d.txn(ctx, nil, ops, nil)
		if d.room.refused(err, len(ops)) {
			continue
		}
		if errors.Is(err, rpctypes.ErrTooManyOps) {
			return driver.Errorf(driver.Refused, "the servers take fewer than %d operations in a transaction, which is too few: raise --max-txn-ops (%w)", leastOps, err)
		}
		return err
	}
}
