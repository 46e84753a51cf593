package etcdlock

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/holdfast-go/holdfast/driver"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// minOps is the number of operations that a transaction must be able to have:
// the largest request that cannot be split has six.
const minOps = 8

// txnLimit is the number of operations that the servers take in one transaction, as
// far as is known: maxReads, until they refuse that many (--max-txn-ops).
type txnLimit struct{ n atomic.Int32 }

func (r *txnLimit) ops() int {
	if n := r.n.Load(); n > 0 {
		return int(n)
	}
	return maxReads
}

// refused reports whether a request of n operations failed because it had too
// many, and should be tried again with the number that ops returns now.
func (r *txnLimit) refused(err error, n int) bool {
	if !errors.Is(err, rpctypes.ErrTooManyOps) || n <= minOps {
		return false
	}
	if fewer := max(minOps, n/2); fewer < r.ops() {
		r.n.Store(int32(fewer))
	}
	return true
}

// measureTxnLimit finds the number of operations that the servers take, with reads of a
// key that does not exist.
func (c *cluster) measureTxnLimit(ctx context.Context) error {
	for {
		ops := make([]*pb.RequestOp, c.txnLimit.ops())
		for i := range ops {
			ops[i] = opGet(getKey(c.keys.prefix + "%"))
		}
		_, err := c.txn(ctx, nil, ops, nil)
		if c.txnLimit.refused(err, len(ops)) {
			continue
		}
		if errors.Is(err, rpctypes.ErrTooManyOps) {
			return driver.Errorf(driver.Refused, "the servers take fewer than %d operations in a transaction, which is too few: raise --max-txn-ops (%w)", minOps, err)
		}
		return err
	}
}
