package etcdlock

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
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

// txn sends one transaction. The client library repeats only a request that
// surely did not reach a server, or that was refused because a token had run
// out.
func (c *cluster) txn(ctx context.Context, cmp []*pb.Compare, then, otherwise []*pb.RequestOp) (*pb.TxnResponse, error) {
	return toLeader(ctx, c, c.kv.Txn, &pb.TxnRequest{Compare: cmp, Success: then, Failure: otherwise})
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

// readOnly returns err with the class for a request that changes nothing: it
// certainly was not carried out.
func readOnly(err error) error {
	if e, ok := errors.AsType[*driver.Error](err); ok && e.Class == driver.Unknown {
		return &driver.Error{Class: driver.Unavailable, Err: e.Err}
	}
	return err
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

// Comparisons. A comparison of a range is true if it is true for every key in
// it; the revisions of an empty range are 0.

func createdIs(key string, rev int64) *pb.Compare {
	return &pb.Compare{Key: []byte(key), Target: pb.Compare_CREATE, Result: pb.Compare_EQUAL,
		TargetUnion: &pb.Compare_CreateRevision{CreateRevision: rev}}
}

func absent(key string) *pb.Compare { return createdIs(key, 0) }

func empty(from, to string) *pb.Compare {
	c := absent(from)
	c.RangeEnd = []byte(to)
	return c
}

// noneAfter is true if no key of the queue was created after rev.
func noneAfter(queue string, rev int64) *pb.Compare {
	return &pb.Compare{Key: []byte(queue), RangeEnd: []byte(after(queue)), Target: pb.Compare_CREATE, Result: pb.Compare_LESS,
		TargetUnion: &pb.Compare_CreateRevision{CreateRevision: rev + 1}}
}

func leaseIs(key string, lease int64) *pb.Compare {
	return &pb.Compare{Key: []byte(key), Target: pb.Compare_LEASE, Result: pb.Compare_EQUAL, TargetUnion: &pb.Compare_Lease{Lease: lease}}
}

func valueIs(key, value string) *pb.Compare {
	return &pb.Compare{Key: []byte(key), Target: pb.Compare_VALUE, Result: pb.Compare_EQUAL,
		TargetUnion: &pb.Compare_Value{Value: []byte(value)}}
}

// Requests.

func get(key string) *pb.RangeRequest { return &pb.RangeRequest{Key: []byte(key)} }

func getKey(key string) *pb.RangeRequest { return &pb.RangeRequest{Key: []byte(key), KeysOnly: true} }

func all(from, to string) *pb.RangeRequest {
	return &pb.RangeRequest{Key: []byte(from), RangeEnd: []byte(to)}
}

// inOrder requests the keys of a queue, oldest first.
func inOrder(queue string) *pb.RangeRequest {
	r := all(queue, after(queue))
	r.SortTarget, r.SortOrder = pb.RangeRequest_CREATE, pb.RangeRequest_ASCEND
	return r
}

// newest requests the keys of a queue, newest first; only those before a
// revision, unless it is 0.
func newest(queue string, before, n int64) *pb.RangeRequest {
	r := all(queue, after(queue))
	r.SortTarget, r.SortOrder = pb.RangeRequest_CREATE, pb.RangeRequest_DESCEND
	r.Limit = n
	if before > 0 {
		r.MaxCreateRevision = before - 1
	}
	return r
}

func keysOnly(r *pb.RangeRequest) *pb.RangeRequest {
	r.KeysOnly = true
	return r
}

func limit(r *pb.RangeRequest, n int64) *pb.RangeRequest {
	r.Limit = n
	return r
}

func opGet(r *pb.RangeRequest) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: r}}
}

func opPut(key, value string, lease int64) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: []byte(key), Value: []byte(value), Lease: lease}}}
}

func opDelete(key string) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: &pb.DeleteRangeRequest{Key: []byte(key)}}}
}

func opTxn(cmp []*pb.Compare, then, otherwise []*pb.RequestOp) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestTxn{RequestTxn: &pb.TxnRequest{Compare: cmp, Success: then, Failure: otherwise}}}
}

// kvs returns the keys that the i-th request of a transaction has read.
func kvs(r *pb.TxnResponse, i int) []*mvccpb.KeyValue {
	return r.Responses[i].GetResponseRange().GetKvs()
}

// one returns the key that the i-th request has read, or nil if it does not
// exist.
func one(r *pb.TxnResponse, i int) *mvccpb.KeyValue {
	if k := kvs(r, i); len(k) > 0 {
		return k[0]
	}
	return nil
}

// classed returns err with its class, which says whether the request may have
// been carried out.
func classed(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return &driver.Error{Class: driver.Unknown, Err: errors.Join(context.Cause(ctx), hint(err))}
	}
	if notReady(err) {
		return driver.NotReady(0, "%w", rpctypes.Error(err))
	}
	return driver.Wrap(class(err), rpctypes.Error(err))
}

// notReady reports whether a member has answered that it does not serve
// requests yet: it has no leader, or too many requests.
func notReady(err error) bool {
	switch rpctypes.Error(err) {
	case rpctypes.ErrNoLeader, rpctypes.ErrTooManyRequests:
		return true
	}
	return false
}

// hint returns the reason that the client library adds to a time-out, or nil if
// it gives none.
func hint(err error) error {
	if s := status.Convert(err).Message(); strings.Contains(s, "connection") || strings.Contains(s, "dial") {
		return errors.New(s)
	}
	return nil
}

func class(err error) driver.Class {
	switch rpctypes.Error(err) {
	case rpctypes.ErrLeaseNotFound, rpctypes.ErrAuthOldRevision:
		return driver.NotDone
	case rpctypes.ErrNoLeader, rpctypes.ErrTooManyRequests, rpctypes.ErrInvalidAuthToken,
		rpctypes.ErrCorrupt, rpctypes.ErrUnhealthy:
		return driver.Unavailable
	case rpctypes.ErrPermissionDenied, rpctypes.ErrAuthFailed, rpctypes.ErrUserNotFound, rpctypes.ErrUserEmpty,
		rpctypes.ErrAuthNotEnabled, rpctypes.ErrInvalidAuthMgmt, rpctypes.ErrTooManyOps, rpctypes.ErrRequestTooLarge,
		rpctypes.ErrDuplicateKey, rpctypes.ErrLeaseTTLTooLarge, rpctypes.ErrPermissionNotGranted,
		rpctypes.ErrNoSpace: // until an operator makes room
		return driver.Refused
	}
	s := status.Convert(err)
	switch s.Code() {
	case codes.Unavailable:
		// These failures of a connection surely came before the request was
		// sent.
		for _, sure := range []string{"Error while dialing", "error reading server preface", "authentication handshake failed",
			"there is no address available", "there is no connection available", "no children to pick from"} {
			if strings.Contains(s.Message(), sure) {
				return driver.Unavailable
			}
		}
	case codes.Unimplemented, codes.PermissionDenied, codes.Unauthenticated, codes.InvalidArgument:
		return driver.Refused
	}
	return driver.Unknown
}

// noLease reports whether a request failed because its lease is over.
func noLease(err error) bool { return errors.Is(err, rpctypes.ErrLeaseNotFound) }

// full reports whether the store takes no new data (F76).
func full(err error) bool { return errors.Is(err, rpctypes.ErrNoSpace) }

// unsent returns an error of a step before the request itself with its class:
// the request was surely not carried out.
func unsent(err error) error {
	if err == nil {
		return nil
	}
	if c := driver.ClassOf(err); c == driver.Unknown {
		return &driver.Error{Class: driver.Unavailable, Err: err}
	}
	return err
}
