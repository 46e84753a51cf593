package etcdlock_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/etcdlock"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
)

// TestOneWakes checks that with each release exactly one waiter gets a message
// from the server, and that its turn has come.
func TestOneWakes(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, v servers.EtcdVersion) {
		t.Parallel()
		s := servers.SharedEtcd(t, v)
		const n = 7
		var ws [n]wire
		var ds [n]*etcdlock.Driver
		var ts [n]*driver.Ticket
		told := make(chan string, 10*n)
		for i := range n {
			d, err := etcdlock.New(client(t, s, &ws[i]), &etcdlock.Options{Prefix: "one-wakes/"})
			if err != nil {
				t.Fatal(err)
			}
			defer d.Close()
			if err := d.Watch(ctx, func(id string, p driver.Status) { told <- fmt.Sprint(id, " ", p.State) }); err != nil {
				t.Fatal(err)
			}
			ds[i] = d
			ts[i] = &driver.Ticket{ID: fmt.Sprint("wakes:", i), Name: "n", Units: 1, Limit: 1, TTL: 10 * time.Minute}
			p, err := d.Join(ctx, ts[i], true)
			if want := []driver.State{driver.Held, driver.Waiting}[min(i, 1)]; err != nil || p.State != want {
				t.Fatalf("number %d joins: %+v, %v", i, p, err)
			}
		}
		for i := range n - 1 {
			if ps, err := ds[i].Leave(ctx, []driver.Ref{{Ticket: ts[i], State: driver.Held}}); err != nil || ps[0].State != driver.Held {
				t.Fatalf("number %d leaves: %+v, %v", i, ps, err)
			}
			select {
			case got := <-told:
				if want := fmt.Sprint(ts[i+1].ID, " held"); got != want {
					t.Errorf("at the turn of %q, told is %q", want, got)
				}
			case <-time.After(2 * time.Minute):
				t.Fatalf("number %d is not told", i+1)
			}
			for k := i + 2; k < n; k++ {
				if events := ws[k].events.Load(); events != 0 {
					t.Errorf("at the turn of number %d, number %d has heard %d events", i+1, k, events)
				}
			}
		}
		if ps, err := ds[n-1].Leave(ctx, []driver.Ref{{Ticket: ts[n-1], State: driver.Held}}); err != nil || ps[0].State != driver.Held {
			t.Errorf("the last one leaves: %+v, %v", ps, err)
		}
		if len(told) > 0 {
			t.Errorf("told besides: %q", <-told)
		}
	})
}

// cancelling turns the next event of a watch into a cancellation by the server,
// if next has one. The event itself is not delivered.
type cancelling struct {
	grpc.ClientStream
	next *atomic.Pointer[pb.WatchResponse]
	wake *atomic.Int64 // watches created on wake keys
}

func (s *cancelling) SendMsg(m any) error {
	if r, ok := m.(*pb.WatchRequest); ok && strings.Contains(string(r.GetCreateRequest().GetKey()), "%w/") {
		s.wake.Add(1)
	}
	return s.ClientStream.SendMsg(m)
}

func (s *cancelling) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	// A waiter of more than a second watches its predecessor's key, too.
	if r, ok := m.(*pb.WatchResponse); ok && err == nil && len(r.Events) > 0 && strings.Contains(string(r.Events[0].Kv.Key), "%w/") {
		if end := s.next.Swap(nil); end != nil {
			r.Events, r.Canceled, r.CancelReason, r.CompactRevision = nil, true, end.CancelReason, end.CompactRevision
		}
	}
	return err
}

// TestF50_WatchCancelled has the server end the watch that would have notified
// a waiter of its grant, either for a reason of its own or because the watch's
// revision was compacted; the notification is lost with the watch. It checks
// that the waiter then asks the store and learns that it holds, and that the
// next notification comes through a new watch.
//
// Covers: F70, F71.
func TestF50_WatchCancelled(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, v servers.EtcdVersion) {
		t.Parallel()
		s := servers.SharedEtcd(t, v)
		var next atomic.Pointer[pb.WatchResponse]
		var wake atomic.Int64
		cli := dialed(t, s,
			grpc.WithChainStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
				st, err := open(ctx, desc, cc, method, opts...)
				if err != nil || !strings.HasSuffix(method, "/Watch") {
					return st, err
				}
				return &cancelling{st, &next, &wake}, nil
			}))
		d, err := etcdlock.New(cli, &etcdlock.Options{Prefix: "cancelled/"})
		if err != nil {
			t.Fatal(err)
		}
		// With this TTL, no renewal comes in time.
		a, b := locks(t, s, "prefix=cancelled/", holdfast.WithTTL(time.Hour)), locksOn(t, d, holdfast.WithTTL(time.Hour))
		for _, end := range []*pb.WatchResponse{
			{CancelReason: "the test says so"}, nil,
			{CancelReason: "required revision has been compacted", CompactRevision: 1 << 40}, nil,
		} {
			h := lock(t, a, "n")
			got := locking(t, b, "n")
			waiting(t, a, "n", 2)
			begun := wake.Load()
			next.Store(end)
			if err := h.Unlock(); err != nil {
				t.Error(err)
			}
			bh := taken(t, got)
			if next.Load() != nil {
				t.Error("the fault did not happen")
			}
			if bh.Token() <= h.Token() {
				t.Errorf("token %d after %d", bh.Token(), h.Token())
			}
			if err := bh.Unlock(); err != nil {
				t.Error(err)
			}
			if end != nil {
				eventually(t, "the watch of grants begins anew", func() bool { return wake.Load() > begun })
			}
		}
	})
}
