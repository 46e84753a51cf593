package etcdlock

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
)

// maxReceive bounds an answer. It has room for a queue of a hundred thousand
// places with the longest metadata.
const maxReceive = 1 << 30

// cluster sends the requests of a driver to the servers. It has no mutex.
type cluster struct {
	cli      *clientv3.Client
	kv       pb.KVClient
	leases   pb.LeaseClient
	watches  pb.WatchClient
	conns    *trackedConns // of cli; nil for a client that the user opened
	keys     layout
	pace     pace
	txnLimit txnLimit
}

// newCluster returns the cluster of a client. The connections are nil for a
// client that the user opened.
func newCluster(cli *clientv3.Client, conns *trackedConns, keys layout) *cluster {
	conn := cli.ActiveConnection()
	return &cluster{
		cli: cli, conns: conns, keys: keys,
		kv: pb.NewKVClient(conn), leases: pb.NewLeaseClient(conn), watches: pb.NewWatchClient(conn),
	}
}

// txn sends one transaction. See send.
func (c *cluster) txn(ctx context.Context, cmp []*pb.Compare, then, otherwise []*pb.RequestOp) (*pb.TxnResponse, error) {
	return c.send(ctx, &pb.TxnRequest{Compare: cmp, Success: then, Failure: otherwise})
}

// send sends one transaction. The client library repeats only a request that
// surely did not reach a server, or that was refused because a token had run
// out.
func (c *cluster) send(ctx context.Context, r *pb.TxnRequest) (*pb.TxnResponse, error) {
	return toLeader(ctx, c, c.kv.Txn, r)
}

// read sends one request that changes nothing.
func (c *cluster) read(ctx context.Context, r *pb.RangeRequest) (*pb.RangeResponse, error) {
	resp, err := toLeader(ctx, c, c.kv.Range, r)
	return resp, readOnly(err)
}

// grant requests a lease.
func (c *cluster) grant(ctx context.Context, ttl time.Duration) (*pb.LeaseGrantResponse, error) {
	return toLeader(ctx, c, c.leases.LeaseGrant, &pb.LeaseGrantRequest{TTL: int64(ttl / time.Second)})
}

// revoke revokes a lease. If that fails, the lease ends by itself.
func (c *cluster) revoke(ctx context.Context, id int64) {
	_, _ = c.leases.LeaseRevoke(ctx, &pb.LeaseRevokeRequest{ID: id})
}

// minSilence is the least time that a request must have gone unanswered at the
// end of its context for the silent connections to be closed.
const minSilence = 3 * time.Second

// toLeader sends a request to a member that has a leader. A member that was cut off
// may lack one for half a minute after that, while the others have one. It
// refuses the request before it does anything, and the client library sends the
// next request to the next member.
func toLeader[Q, A any](ctx context.Context, c *cluster, send func(context.Context, Q, ...grpc.CallOption) (A, error), request Q) (A, error) {
	for left := len(c.cli.Endpoints()); ; left-- {
		sent := time.Now()
		answer, err := send(clientv3.WithRequireLeader(ctx), request, grpc.MaxCallRecvMsgSize(maxReceive))
		if ctx.Err() != nil {
			c.pace.silent(time.Since(sent))
			if took := time.Since(sent); took >= minSilence {
				c.conns.closeSilent(took)
			}
		} else if err == nil {
			c.pace.took(time.Since(sent))
		}
		if left <= 1 || ctx.Err() != nil || rpctypes.Error(err) != rpctypes.ErrNoLeader {
			return answer, classed(ctx, err)
		}
	}
}

// pace is the time that the servers have lately taken to answer a request.
// Actions that respond to a suspected failure wait for a multiple of it: a slow
// server must not get more work than a quick one.
type pace struct{ ns atomic.Int64 }

// took records an answer. Slower answers count at once, quicker ones by and by.
func (p *pace) took(d time.Duration) {
	old := p.ns.Load()
	if next := int64(d); next > old {
		p.ns.Store((old + next) / 2)
	} else {
		p.ns.Store(old - (old-next)/8)
	}
}

// silent records a request that had no answer after d.
func (p *pace) silent(d time.Duration) {
	if int64(d) > p.ns.Load() {
		p.took(d)
	}
}

// times returns n times the time that an answer takes, within bounds.
func (p *pace) times(n int64, least, most time.Duration) time.Duration {
	return min(max(time.Duration(n*p.ns.Load()), least), most)
}

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
