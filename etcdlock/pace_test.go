package etcdlock_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/etcdlock"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
	"google.golang.org/grpc"
)

// TestF106_SlowServerGetsNoMoreToDo checks that waiters of a slow server, who
// have all waited for a second, neither read their predecessors nor watch them
// for that reason, which would make the server slower. With a quick server each
// waiter does.
func TestF106_SlowServerGetsNoMoreToDo(t *testing.T) {
	t.Parallel()
	s := servers.SharedEtcd(t, servers.EtcdNewest)
	const waiters = 6
	for _, c := range []struct {
		takes time.Duration
		looks bool
	}{{0, true}, {300 * time.Millisecond, false}} {
		t.Run(c.takes.String(), func(t *testing.T) {
			t.Parallel()
			w := new(wire)
			counted := client(t, s, w)
			slow := dialed(t, s, grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
				select {
				case <-time.After(c.takes):
				case <-ctx.Done():
					return ctx.Err()
				}
				return counted.ActiveConnection().Invoke(ctx, method, req, reply, opts...)
			}), grpc.WithChainStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
				return counted.ActiveConnection().NewStream(ctx, desc, method, opts...)
			}))
			d, err := etcdlock.New(slow, &etcdlock.Options{Prefix: "pace" + c.takes.String() + "/"})
			if err != nil {
				t.Fatal(err)
			}
			defer d.Close()
			if err := d.Watch(ctx, func(string, driver.Status) {}); err != nil {
				t.Fatal(err)
			}
			// A machine that does much else makes a quick server slow, or stands still
			// until the looks are over.
			for trial := range 20 {
				for i := range waiters + 1 {
					tk := &driver.Ticket{ID: fmt.Sprintf("pace:%d-%d", trial, i), Name: fmt.Sprint("n", trial), Units: 1, Limit: 1, TTL: time.Minute}
					if _, err := d.Join(ctx, tk, true); err != nil {
						t.Fatal(err)
					}
				}
				w.reset()
				time.Sleep(1500 * time.Millisecond)
				n := w.calls.Load()
				if (n > 0) == c.looks {
					return
				}
				if !c.looks || trial == 19 {
					t.Fatalf("%d requests while nothing happens to %d places that are more than a second old", n, waiters+1)
				}
			}
		})
	}
}
