package etcdlock_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/etcdlock"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
)

// TestF130_RenewalsInADeepQueueReadNoQueue checks that a waiter behind many others is
// renewed without a read for which the server sorts the whole queue, until the place
// before its own is gone: after that by one such read.
func TestF130_RenewalsInADeepQueueReadNoQueue(t *testing.T) {
	t.Parallel()
	s := servers.SharedEtcd(t, servers.EtcdNewest)
	var sorted atomic.Int64 // reads of queues
	cli := dialed(t, s, grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		if txn, ok := req.(*pb.TxnRequest); ok {
			for _, op := range txn.Success {
				if r := op.GetRequestRange(); r != nil && r.SortOrder != pb.RangeRequest_NONE {
					sorted.Add(1)
				}
			}
		}
		return invoke(ctx, method, req, reply, cc, opts...)
	}))
	d, err := etcdlock.New(cli, &etcdlock.Options{Prefix: "deep/"})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	const n = 110
	queue := make([]driver.Ref, n)
	for i := range queue {
		queue[i] = driver.Ref{State: driver.Waiting, Ticket: &driver.Ticket{ID: fmt.Sprintf("deep:%d", i), Name: "n", Units: 1, Limit: 1, TTL: 10 * time.Minute}}
		if _, err := d.Join(ctx, queue[i].Ticket, true); err != nil {
			t.Fatal(err)
		}
	}
	queue[0].State = driver.Held
	last, before := queue[n-1], queue[n-2]
	renew := func(when string, want driver.State, reads int64) {
		t.Helper()
		sorted.Store(0)
		got, err := d.Renew(ctx, []driver.Ref{last})
		if err != nil || got[0].Err != nil || got[0].State != want {
			t.Fatalf("%s: %+v, %v, want %v", when, got, err, want)
		}
		if n := sorted.Load(); n != reads {
			t.Errorf("%s: %d reads of the queue, want %d", when, n, reads)
		}
	}
	leave := func(refs ...driver.Ref) {
		t.Helper()
		got, err := d.Leave(ctx, refs)
		if err != nil {
			t.Fatal(err)
		}
		for i, s := range got {
			if s.Err != nil || s.State == driver.Gone {
				t.Fatalf("Leave of %s: %+v", refs[i].ID, s)
			}
		}
	}
	renew("behind 109 places", driver.Waiting, 0)
	leave(before)
	renew("after the place before it was given up", driver.Waiting, 1)
	renew("once more", driver.Waiting, 0)
	leave(queue[1 : n-2]...)
	renew("behind the holder alone", driver.Waiting, 1)
	leave(queue[0])
	sorted.Store(0)
	if got, err := d.Renew(ctx, []driver.Ref{last}); err != nil || got[0].State != driver.Held || got[0].Token == 0 {
		t.Errorf("the only place left is %+v, %v", got, err)
	}
	leave(last)
}
