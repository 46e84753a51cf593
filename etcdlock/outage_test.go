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
	"github.com/holdfast-go/holdfast/internal/backends"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
)

// outage is a time in which no request that writes is answered, by any member.
// The first that makes a key is on its way all the while.
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

func (o *outage) set(on bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.on = on
}

// TestF1_CarriedOutAfterAnOutage: a Join is carried out when its caller and all
// who tidy up after it have long given up, as by members that were cut off from
// each other and keep what they were sent. The client's lease lives, and the
// place must not live on by it.
//
// Found by check/internal/servers, TestSplits/safe/etcd_of_three with seed 601.
// Covers: F3, F73.
func TestF1_CarriedOutAfterAnOutage(t *testing.T) {
	t.Parallel()
	s := backends.SharedEtcd(t, backends.EtcdNewest)
	plain := client(t, s, nil)
	const ttl = time.Second
	after := map[string]time.Duration{"at once": 0, "later": 3 * ttl} // the outage
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
			h, err := c.Mutex("warm").Lock(ctx) // it has a lease now
			if err == nil {
				err = h.Unlock()
			}
			if err != nil {
				t.Error(err)
				return
			}
			o.set(true)
			if _, err := c.Mutex("n").Lock(within(t, ttl/5)); !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
			time.Sleep(4 * ttl) // until those who tidy up have given up
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
