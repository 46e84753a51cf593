package etcdlock_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdlock"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// TestF124_LocksWithoutWatches checks that free locks are granted and waiters
// get their turn by renewals while no watch can be created, because the server
// refuses watches or does not answer.
func TestF124_LocksWithoutWatches(t *testing.T) {
	t.Parallel()
	s := servers.SharedEtcd(t, servers.EtcdNewest)
	for how, open := range map[string]func(context.Context) error{
		"refused": func(context.Context) error { return status.Error(codes.PermissionDenied, "no watches here") },
		"silent":  func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			cli := dialed(t, s, grpc.WithChainStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, stream grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
				if strings.HasSuffix(method, "/Watch") {
					return nil, open(ctx)
				}
				return stream(ctx, desc, cc, method, opts...)
			}))
			d, err := etcdlock.New(cli, &etcdlock.Options{Prefix: "deaf/" + how + "/"})
			if err != nil {
				t.Fatal(err)
			}
			const ttl = 12 * time.Second
			c := locksOn(t, d, holdfast.WithTTL(ttl))
			other := locks(t, s, "prefix=deaf/"+how+"/", holdfast.WithTTL(ttl))
			begun := time.Now()
			const long = 45 * time.Second // a quarter of which nothing but the missing watch takes
			h, err := c.Mutex("free", holdfast.WithTTL(long)).Lock(within(t, long/4))
			if err != nil {
				t.Fatalf("a free lock: %v, after %v", err, time.Since(begun))
			}
			if err := h.Unlock(); err != nil {
				t.Error(err)
			}
			held, err := other.Mutex("n").Lock(ctx)
			if err != nil {
				t.Fatal(err)
			}
			var all sync.WaitGroup
			defer all.Wait()
			all.Go(func() {
				h, err := c.Mutex("n").Lock(within(t, 3*time.Minute))
				if err != nil {
					t.Errorf("a waiter: %v", err)
					return
				}
				if err := h.Unlock(); err != nil {
					t.Error(err)
				}
			})
			for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
				queue, err := other.Inspect(ctx, "n")
				if err == nil && len(queue.Holders)+len(queue.Waiters) == 2 {
					break
				}
				if time.Now().After(end) {
					t.Errorf("nobody waits: %+v, %v", queue, err)
					break
				}
			}
			if err := held.Unlock(); err != nil {
				t.Error(err)
			}
		})
	}
}
