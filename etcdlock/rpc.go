package etcdlock

import (
	"context"
	"errors"
	"strings"

	"github.com/holdfast-go/holdfast/driver"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// maxReceive bounds an answer: a line of some ten thousand places.
const maxReceive = 64 << 20

// txn sends one transaction. The client library repeats only what surely did not
// reach a server, and what was refused because a token had run out.
func (d *Driver) txn(ctx context.Context, cmp []*pb.Compare, then, otherwise []*pb.RequestOp) (*pb.TxnResponse, error) {
	return led(ctx, d, d.kv.Txn, &pb.TxnRequest{Compare: cmp, Success: then, Failure: otherwise})
}

// read sends one request that changes nothing.
func (d *Driver) read(ctx context.Context, r *pb.RangeRequest) (*pb.RangeResponse, error) {
	return led(ctx, d, d.kv.Range, r)
}

// led sends a request to a member that has a leader. One that was cut off may have
// none for half a minute after that, while the others do. It refuses before it does
// anything, and the client library takes the next one for the next request.
func led[Q, A any](ctx context.Context, d *Driver, send func(context.Context, Q, ...grpc.CallOption) (A, error), request Q) (A, error) {
	for left := len(d.cli.Endpoints()); ; left-- {
		answer, err := send(clientv3.WithRequireLeader(ctx), request, grpc.MaxCallRecvMsgSize(maxReceive))
		if left <= 1 || ctx.Err() != nil || rpctypes.Error(err) != rpctypes.ErrNoLeader {
			return answer, classed(ctx, err)
		}
	}
}

// Comparisons. One over a range is true when it is true for every key there;
// of an empty range the revisions are 0.

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

// noneAfter: no key of the line was created after the revision.
func noneAfter(line string, rev int64) *pb.Compare {
	return &pb.Compare{Key: []byte(line), RangeEnd: []byte(after(line)), Target: pb.Compare_CREATE, Result: pb.Compare_LESS,
		TargetUnion: &pb.Compare_CreateRevision{CreateRevision: rev + 1}}
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

// inOrder are the keys of a line, oldest first.
func inOrder(line string) *pb.RangeRequest {
	r := all(line, after(line))
	r.SortTarget, r.SortOrder = pb.RangeRequest_CREATE, pb.RangeRequest_ASCEND
	return r
}

// newest are the keys of a line, newest first; before the revision, unless
// that is 0.
func newest(line string, before, n int64) *pb.RangeRequest {
	r := all(line, after(line))
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

// kvs returns what the i-th request of an answer has read.
func kvs(r *pb.TxnResponse, i int) []*mvccpb.KeyValue {
	return r.Responses[i].GetResponseRange().GetKvs()
}

// one is kvs of a request for one key, nil when it was not there.
func one(r *pb.TxnResponse, i int) *mvccpb.KeyValue {
	if k := kvs(r, i); len(k) > 0 {
		return k[0]
	}
	return nil
}

// classed says what is known about a request that failed.
func classed(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return &driver.Error{Class: driver.Unknown, Err: errors.Join(context.Cause(ctx), hint(err))}
	}
	return driver.Wrap(class(err), rpctypes.Error(err))
}

// hint is what the client library adds to a time-out, when it says why.
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
	case rpctypes.ErrNoSpace, rpctypes.ErrNoLeader, rpctypes.ErrTooManyRequests, rpctypes.ErrInvalidAuthToken,
		rpctypes.ErrCorrupt, rpctypes.ErrUnhealthy:
		return driver.Unavailable
	case rpctypes.ErrPermissionDenied, rpctypes.ErrAuthFailed, rpctypes.ErrUserNotFound, rpctypes.ErrUserEmpty,
		rpctypes.ErrAuthNotEnabled, rpctypes.ErrInvalidAuthMgmt, rpctypes.ErrTooManyOps, rpctypes.ErrRequestTooLarge,
		rpctypes.ErrDuplicateKey, rpctypes.ErrLeaseTTLTooLarge, rpctypes.ErrPermissionNotGranted:
		return driver.Refused
	}
	s := status.Convert(err)
	switch s.Code() {
	case codes.Unavailable:
		// Of all that may have become of a connection, these came before the
		// request.
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

// noLease says whether the request failed because its lease is over.
func noLease(err error) bool { return errors.Is(err, rpctypes.ErrLeaseNotFound) }

// full says whether the store takes no new data (F76).
func full(err error) bool { return errors.Is(err, rpctypes.ErrNoSpace) }

// unsent gives an error of a step that came before the request itself its
// class: the request was surely not carried out.
func unsent(err error) error {
	if err == nil {
		return nil
	}
	if c := driver.ClassOf(err); c == driver.Unknown {
		return &driver.Error{Class: driver.Unavailable, Err: err}
	}
	return err
}
