package etcdlock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/etcdlock"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
)

// lossy drops the answer of a transaction that was carried out, or fails a
// transaction at once and sends it only when late is closed.
type lossy struct {
	next, hold atomic.Bool
	late, done chan struct{}
}

var errCut = errors.New("the answer was lost")

func lossyClient(t testing.TB, s *servers.EtcdServer, l *lossy) *clientv3.Client {
	t.Helper()
	return dialed(t, s,
		grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			if strings.HasSuffix(method, "/Txn") && l.hold.CompareAndSwap(true, false) {
				go func() {
					defer close(l.done)
					<-l.late
					limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
					defer cancel()
					if err := invoke(limit, method, req, reply, cc, opts...); err != nil {
						t.Errorf("the late request: %v", err)
					}
				}()
				return errCut
			}
			err := invoke(ctx, method, req, reply, cc, opts...)
			if err == nil && strings.HasSuffix(method, "/Txn") && l.next.CompareAndSwap(true, false) {
				return errCut
			}
			return err
		}))
}

// TestF3_LateJoin checks that a Join that reaches the server after its ticket
// has left takes no place.
func TestF3_LateJoin(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, v servers.EtcdVersion) {
		t.Parallel()
		s := servers.SharedEtcd(t, v)
		for _, c := range []struct {
			limit int64
			wait  bool
			owner string
		}{{1, true, ""}, {1, false, ""}, {5, true, ""}, {5, false, ""}} {
			l := lossy{late: make(chan struct{}), done: make(chan struct{})}
			d, err := etcdlock.New(lossyClient(t, s, &l), &etcdlock.Options{Prefix: "late/"})
			if err != nil {
				t.Fatal(err)
			}
			first := &driver.Ticket{ID: "l:1", Name: "other", Units: 1, Limit: 1, TTL: 10 * time.Second}
			if _, err := d.Join(ctx, first, true); err != nil { // opens the session
				t.Fatal(err)
			}
			l.hold.Store(true)
			tk := &driver.Ticket{ID: "l:2", Name: "n", Units: 1, Limit: c.limit, TTL: 10 * time.Second, Owner: c.owner}
			if _, err := d.Join(ctx, tk, c.wait); err == nil || driver.ClassOf(err) != driver.Unknown {
				t.Errorf("Join without an answer: %v", err)
			}
			ps, err := d.Leave(ctx, []driver.Ref{{Ticket: tk, State: driver.Waiting, JoinPending: true}})
			if err != nil || ps[0].State != driver.Gone {
				t.Errorf("Leave: %+v, %v", ps, err)
			}
			close(l.late)
			<-l.done
			if queue, err := d.Inspect(ctx, "n"); err != nil || len(queue.Tickets) > 0 {
				t.Errorf("%+v: the late Join took a place: %+v, %v", c, queue, err)
			}
			d.Leave(ctx, []driver.Ref{{Ticket: first, State: driver.Held}})
			d.Close()
		}
	})
}

// TestF1_F2_F75_LostAnswers checks that a repeated Join, after one whose answer
// was lost, finds the place. A Leave that is repeated after a lost answer does
// not touch the same client's newer lock (F2, etcd#22082): that lock has
// another key as long as the end of the older one is not confirmed.
func TestF1_F2_F75_LostAnswers(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, v servers.EtcdVersion) {
		t.Parallel()
		s := servers.SharedEtcd(t, v)
		var l lossy
		d, err := etcdlock.New(lossyClient(t, s, &l), &etcdlock.Options{Prefix: "answers/"})
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		witness := locks(t, s, "prefix=answers/")
		ticket := func(i int) *driver.Ticket {
			return &driver.Ticket{ID: fmt.Sprint("a:", i), Name: "n", Units: 1, Limit: 1, TTL: 10 * time.Second}
		}
		old := ticket(1)
		if p, err := d.Join(ctx, old, true); err != nil || p.State != driver.Held {
			t.Fatalf("Join: %v, %v", p, err)
		}
		l.next.Store(true)
		ps, err := d.Leave(ctx, []driver.Ref{{Ticket: old, State: driver.Held}})
		if err == nil || driver.ClassOf(err) != driver.Unknown {
			t.Errorf("Leave without an answer: %v, %v", ps, err)
		}
		newer := ticket(2)
		l.next.Store(true)
		if _, err := d.Join(ctx, newer, true); err == nil || driver.ClassOf(err) != driver.Unknown {
			t.Errorf("Join without an answer: %v", err)
		}
		p, err := d.Join(ctx, newer, true)
		if err != nil || p.State != driver.Held {
			t.Fatalf("Join again: %v, %v", p, err)
		}
		for range 2 {
			if ps, err := d.Leave(ctx, []driver.Ref{{Ticket: old, State: driver.Held}}); err != nil || ps[0].State != driver.Gone {
				t.Errorf("Leave again: %v, %v", ps, err)
			}
		}
		queue, err := witness.Inspect(ctx, "n")
		if err != nil || len(queue.Holders)+len(queue.Waiters) != 1 || queue.Holders[0].ID != newer.ID {
			t.Errorf("the line is %+v, %v", queue, err)
		}
		if ps, err := d.Leave(ctx, []driver.Ref{{Ticket: newer, State: driver.Held}}); err != nil || ps[0].State != driver.Held {
			t.Errorf("Leave: %v, %v", ps, err)
		}
	})
}
