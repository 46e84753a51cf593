package etcdlock_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/etcdlock"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
)

// beats holds the answers to keep-alives back, and records until when the lease lasts by
// those that have come.
type beats struct {
	late time.Duration

	mu    sync.Mutex
	until time.Time // zero before the first answer
}

// slowStream pairs the keep-alives of one stream with their answers, which come in order.
// A stream that breaks takes its unanswered keep-alives along.
type slowStream struct {
	grpc.ClientStream
	b    *beats
	sent []time.Time // of those without an answer
}

func (s *slowStream) SendMsg(m any) error {
	s.b.mu.Lock()
	s.sent = append(s.sent, time.Now())
	s.b.mu.Unlock()
	return s.ClientStream.SendMsg(m)
}

func (s *slowStream) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	if r, ok := m.(*pb.LeaseKeepAliveResponse); ok && err == nil {
		time.Sleep(s.b.late)
		s.b.mu.Lock()
		if until := s.sent[0].Add(time.Duration(r.TTL) * time.Second); until.After(s.b.until) {
			s.b.until = until
		}
		s.sent = s.sent[1:]
		s.b.mu.Unlock()
	}
	return err
}

// TestF14_SlowKeepAlives delays the answers to keep-alives for longer than a
// lease has room for. It checks that a renewal is answered nevertheless, and
// that its promise counts from when the keep-alive was sent, not from when its
// answer came.
func TestF14_SlowKeepAlives(t *testing.T) {
	t.Parallel()
	s := servers.SharedEtcd(t, servers.EtcdNewest)
	b := &beats{late: 800 * time.Millisecond}
	cli := dialed(t, s,
		grpc.WithChainStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
			st, err := open(ctx, desc, cc, method, opts...)
			if err != nil || !strings.HasSuffix(method, "/LeaseKeepAlive") {
				return st, err
			}
			return &slowStream{ClientStream: st, b: b}, nil
		}))
	d, err := etcdlock.New(cli, &etcdlock.Options{Prefix: "slow/"})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	tk := &driver.Ticket{ID: "slow:1", Name: "n", Units: 1, Limit: 1, TTL: 6 * time.Second}
	if p, err := d.Join(ctx, tk, true); err != nil || p.State != driver.Held {
		t.Fatalf("Join: %+v, %v", p, err)
	}
	for range 4 {
		time.Sleep(400 * time.Millisecond) // the last keep-alive is too old; the time of its answer would not be
		start := time.Now()
		ps, err := d.Renew(within(t, 20*time.Second), []driver.Ref{{Ticket: tk, State: driver.Held}})
		if err != nil || ps[0].State != driver.Held {
			t.Fatalf("Renew: %+v, %v", ps, err)
		}
		b.mu.Lock()
		if end := start.Add(ps[0].Lease); !b.until.IsZero() && end.After(b.until) {
			t.Errorf("promised until %v after the lease may have ended", end.Sub(b.until))
		}
		b.mu.Unlock()
		if ps[0].Lease < tk.TTL {
			t.Errorf("promised are %v of a TTL of %v", ps[0].Lease, tk.TTL)
		}
	}
	if ps, err := d.Leave(ctx, []driver.Ref{{Ticket: tk, State: driver.Held}}); err != nil || ps[0].State != driver.Held {
		t.Errorf("Leave: %+v, %v", ps, err)
	}
}
