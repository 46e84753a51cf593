package etcdlock_test

import (
	"context"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/holdfast-go/holdfast/etcdlock"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
)

// TestF73_SilentMember names a member that accepts connections and requests but
// answers none, like a member that the others have lost. It checks that Open
// goes past it, wherever it is in the list.
//
// Found by internal/safety/servers, TestSplits/safe/etcd_of_three with seed 601.
func TestF73_SilentMember(t *testing.T) {
	t.Parallel()
	s := servers.SharedEtcd(t, servers.EtcdNewest)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	silent := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		<-stream.Context().Done()
		return stream.Context().Err()
	}))
	var wg sync.WaitGroup
	defer wg.Wait()
	defer silent.Stop()
	wg.Go(func() { _ = silent.Serve(l) })
	var opens sync.WaitGroup
	for i := range 6 { // the client library begins with a random member
		opens.Go(func() {
			hosts := []string{l.Addr().String(), s.Members[0].Addr()}
			if i%2 == 1 {
				hosts[0], hosts[1] = hosts[1], hosts[0]
			}
			d, err := etcdlock.Open(ctx, "etcd://"+strings.Join(hosts, ",")+"?dial_timeout=8s")
			if err != nil {
				t.Error(err)
				return
			}
			_ = d.Close()
		})
	}
	opens.Wait()
}

// TestF73_LeaderlessMember has a member report that it has no leader, while
// others have one. It checks that the driver sends the request to the others at
// once, since the member has done nothing.
//
// Found by internal/safety/servers, TestSplits/safe/etcd_of_three with seed 601.
func TestF73_LeaderlessMember(t *testing.T) {
	t.Parallel()
	s := servers.SharedEtcd(t, servers.EtcdNewest)
	var refuses atomic.Int64 // the number of requests still to refuse
	cli, err := clientv3.New(clientv3.Config{
		Endpoints: []string{s.Members[0].Addr(), strings.Replace(s.Members[0].Addr(), "127.0.0.1", "localhost", 1)}, Logger: zap.NewNop(),
		DialOptions: []grpc.DialOption{
			grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
				if strings.HasPrefix(method, "/etcdserverpb.KV/") && refuses.Add(-1) >= 0 {
					return rpctypes.ErrGRPCNoLeader
				}
				return invoke(ctx, method, req, reply, cc, opts...)
			})},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer cli.Close()
	d, err := etcdlock.New(cli, &etcdlock.Options{Prefix: "leaderless/"})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	inspect := func() error { _, err := d.Inspect(ctx, "n"); return err }
	list := func() error {
		for _, err := range d.Names(ctx, "") {
			return err
		}
		return nil
	}
	for _, ask := range []func() error{inspect, list, inspect, list} {
		refuses.Store(1)
		if err := ask(); err != nil {
			t.Error(err)
		}
		if left := refuses.Load(); left >= 0 {
			t.Errorf("%d requests were not refused", left+1)
		}
	}
	refuses.Store(100)
	if _, err := d.Inspect(ctx, "n"); err == nil {
		t.Error("nobody has a leader, and Inspect says nothing")
	}
	if asked := 100 - refuses.Load(); asked != 2 {
		t.Errorf("two members were asked %d times", asked)
	}
}
