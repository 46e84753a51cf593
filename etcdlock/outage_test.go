package etcdlock_test

import (
	"context"
	"errors"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdlock"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
)

// outage is a time in which no member answers a request that writes. The first
// request that makes a key stays under way all the while.
type outage struct {
	mu    sync.Mutex
	on    bool
	first *pb.TxnRequest
}

func (o *outage) call(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	o.mu.Lock()
	on := o.on
	if r, ok := req.(*pb.TxnRequest); on && ok && o.first == nil && slices.ContainsFunc(r.Success, func(op *pb.RequestOp) bool { return op.GetRequestPut() != nil }) {
		o.first = r
	}
	o.mu.Unlock()
	if !on || strings.HasSuffix(method, "/Range") {
		return invoke(ctx, method, req, reply, cc, opts...)
	}
	<-ctx.Done()
	return ctx.Err()
}

// lease returns the lease of the first key that was to be made.
func (o *outage) lease() int64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	i := slices.IndexFunc(o.first.Success, func(op *pb.RequestOp) bool { return op.GetRequestPut() != nil })
	return o.first.Success[i].GetRequestPut().Lease
}

// begun reports whether a request to make a key is under way.
func (o *outage) begun() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.first != nil
}

func (o *outage) set(on bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.on = on
}

// TestF1_CarriedOutAfterAnOutage checks a Join that is carried out long after
// its caller and the clean-up for it have given up, as by members that were cut
// off from each other and keep the requests that they got. The client's lease
// lives, but the place must not live on with it.
//
// Found by internal/safety/servers, TestSplits/safe/etcd_of_three with seed 601.
// Covers: F3, F73.
func TestF1_CarriedOutAfterAnOutage(t *testing.T) {
	t.Parallel()
	s := servers.SharedEtcd(t, servers.EtcdNewest)
	plain := client(t, s, nil)
	const ttl = 4 * time.Second                                       // the lease survives it on a busy machine, too
	after := map[string]time.Duration{"at once": 0, "later": 3 * ttl} // the length of the outage
	var all sync.WaitGroup
	defer all.Wait()
	for when, wait := range after {
		prefix := "outage/" + when + "/"
		o := new(outage)
		d, err := etcdlock.New(dialed(t, s, grpc.WithChainUnaryInterceptor(o.call)), &etcdlock.Options{Prefix: prefix})
		if err != nil {
			t.Fatal(err)
		}
		c, other := locksOn(t, d, holdfast.WithTTL(ttl)), locks(t, s, "prefix="+url.QueryEscape(prefix))
		all.Go(func() {
			h, err := c.Mutex("warm").Lock(ctx) // gives the driver a lease
			if err == nil {
				err = h.Unlock()
			}
			if err != nil {
				t.Error(err)
				return
			}
			o.set(true)
			given, giveUp := context.WithCancel(ctx)
			all.Go(func() {
				defer giveUp()
				eventually(t, "the Join is under way", o.begun)
				time.Sleep(ttl / 5)
			})
			if _, err := c.Mutex("n").Lock(given); !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
			// The clean-up gives up meanwhile. The lease lives, as other places
			// in it would keep it alive.
			lease := clientv3.LeaseID(o.lease())
			for range 16 {
				time.Sleep(ttl / 4)
				if _, err := plain.KeepAliveOnce(ctx, lease); err != nil {
					t.Errorf("the lease: %v", err)
				}
			}
			if wait > 0 {
				o.set(false)
				time.Sleep(wait)
			}
			r, err := pb.NewKVClient(plain.ActiveConnection()).Txn(ctx, o.first)
			o.set(false)
			if err != nil || r.Succeeded != (wait == 0) {
				t.Errorf("carried out %s: %v, %v", when, r, err)
			}
			h, err = other.Mutex("n").Lock(within(t, 20*ttl))
			if err != nil {
				t.Errorf("carried out %s: %v", when, err)
				return
			}
			if err := h.Unlock(); err != nil {
				t.Error(err)
			}
		})
	}
}
