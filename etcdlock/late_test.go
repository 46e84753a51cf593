package etcdlock_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/etcdlock"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
	"google.golang.org/grpc"
)

// kept holds answers to keep-alives back while its gate is shut.
type kept struct {
	grpc.ClientStream
	gate *atomic.Pointer[chan struct{}] // closed when it is open
}

func (k kept) RecvMsg(m any) error {
	if err := k.ClientStream.RecvMsg(m); err != nil {
		return err
	}
	select {
	case <-*k.gate.Load():
		return nil
	case <-k.Context().Done():
		return k.Context().Err()
	}
}

// TestLateRenewal checks a renewal that reads that a ticket has its place, and
// then waits for a keep-alive, while the ticket's time ends and the driver
// gives the place up. The answer to the keep-alive proves nothing then: two
// tickets held for some milliseconds, after a server and a client had been
// stopped in turn. TestSafe/etcd of internal/safety/servers found the defect
// with seed 302.
func TestLateRenewal(t *testing.T) {
	t.Parallel()
	s := servers.SharedEtcd(t, servers.EtcdNewest)
	var gate atomic.Pointer[chan struct{}]
	open1, shut := make(chan struct{}), make(chan struct{})
	close(open1)
	gate.Store(&open1)
	read := make(chan struct{}, 100)
	cli := dialed(t, s,
		grpc.WithChainStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
			cs, err := streamer(ctx, desc, cc, method, opts...)
			if err == nil && strings.HasSuffix(method, "/LeaseKeepAlive") {
				return kept{cs, &gate}, nil
			}
			return cs, err
		}),
		grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			err := invoke(ctx, method, req, reply, cc, opts...)
			if strings.HasSuffix(method, "/Txn") {
				select {
				case read <- struct{}{}:
				default:
				}
			}
			return err
		}))
	d, err := etcdlock.New(cli, &etcdlock.Options{Prefix: "renewal/"})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	other := open(t, s, "prefix=renewal/")
	const ttl = 5 * time.Second
	late := &driver.Ticket{ID: "a:1", Name: "n", Units: 1, Limit: 1, TTL: ttl}
	if p, err := d.Join(ctx, late, true); err != nil || p.State != driver.Held {
		t.Fatalf("Join: %v, %v", p, err)
	}
	next := &driver.Ticket{ID: "b:1", Name: "n", Units: 1, Limit: 1, TTL: time.Minute}
	if p, err := other.Join(ctx, next, true); err != nil || p.State != driver.Waiting {
		t.Fatalf("the next: %v, %v", p, err)
	}
	gate.Store(&shut)
	time.Sleep(ttl / 2) // until the last keep-alive is too old for a promise
	for len(read) > 0 {
		<-read
	}
	type answered struct {
		ps  []driver.Status
		err error
	}
	renewed := make(chan answered)
	go func() {
		ps, err := d.Renew(context.WithoutCancel(ctx), []driver.Ref{{Ticket: late, State: driver.Held}})
		renewed <- answered{ps, err}
	}()
	<-read
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		p, err := other.Join(ctx, next, true)
		if err == nil && p.State == driver.Held {
			break
		}
		if err != nil || time.Now().After(end) {
			t.Fatalf("the next: %v, %v", p, err)
		}
	}
	close(shut)
	if a := <-renewed; a.err != nil || a.ps[0].State != driver.Gone {
		t.Errorf("the renewal of one whose place another has: %+v, %v", a.ps, a.err)
	}
	if _, err := other.Leave(ctx, []driver.Ref{{Ticket: next, State: driver.Held}}); err != nil {
		t.Error(err)
	}
}
