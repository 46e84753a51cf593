package etcdlock_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/etcdlock"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
)

// TestF130_NamesBesideLargeValues checks that Names lists all names, and reads
// no value, if other programs keep large values in the same store, also under
// keys that look like a lock's.
func TestF130_NamesBesideLargeValues(t *testing.T) {
	t.Parallel()
	s := servers.Etcd(t, servers.EtcdOptions{})
	cli := dialed(t, s)
	large := strings.Repeat("x", 1_200_000)
	for i := range 60 {
		key := fmt.Sprintf("data/%02d", i)
		if i%3 == 0 {
			key = fmt.Sprintf("data%d/%x", i, 1000+i) // looks as if it ended with a lease
		}
		if _, err := cli.Put(ctx, key, large); err != nil {
			t.Fatal(err)
		}
	}
	var values atomic.Int64 // bytes of values that the driver has read
	own := dialed(t, s, grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		err := invoke(ctx, method, req, reply, cc, opts...)
		if r, ok := reply.(*pb.RangeResponse); ok {
			for _, kv := range r.Kvs {
				values.Add(int64(len(kv.Value)))
			}
		}
		return err
	}))
	d, err := etcdlock.New(own, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	want := []string{"a", "data5", "z"}
	for i, name := range want {
		tk := &driver.Ticket{ID: fmt.Sprintf("bulk:%d", i), Name: name, Units: 1, Limit: 1, TTL: time.Minute}
		if p, err := d.Join(ctx, tk, true); err != nil || p.State != driver.Held {
			t.Fatalf("%+v, %v", p, err)
		}
	}
	var got []string
	for name, err := range d.Names(ctx, "") {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, name)
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("the names are %q, want %q", got, want)
	}
	if n := values.Load(); n > 100_000 {
		t.Errorf("%d bytes of values were read", n)
	}
}
