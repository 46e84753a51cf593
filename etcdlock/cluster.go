package etcdlock

import (
	"context"
	"time"

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
