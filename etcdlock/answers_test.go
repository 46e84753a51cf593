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
	"github.com/holdfast-go/holdfast/internal/backends"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
)

// lossy loses the answer of a transaction that was carried out, or keeps one
// back until late is closed, which its caller does not wait for.
type lossy struct {
	next, hold atomic.Bool
	late, done chan struct{}
}

var errCut = errors.New("the answer was lost")

func lossyClient(t testing.TB, s *backends.EtcdServer, l *lossy) *clientv3.Client {
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

// TestF3_LateJoin: a Join arrives at the server after its ticket has left.
func TestF3_LateJoin(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, v backends.EtcdVersion) {
		t.Parallel()
		s := backends.SharedEtcd(t, v)
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
			ps, err := d.Leave(ctx, []driver.Ref{{Ticket: tk, State: driver.Waiting, Unsure: true}})
			if err != nil || ps[0].State != driver.Gone {
				t.Errorf("Leave: %+v, %v", ps, err)
			}
			close(l.late)
			<-l.done
			if line, err := d.Inspect(ctx, "n"); err != nil || len(line.Tickets) > 0 {
				t.Errorf("%+v: the late Join took a place: %+v, %v", c, line, err)
			}
			d.Leave(ctx, []driver.Ref{{Ticket: first, State: driver.Held}})
			d.Close()
		}
	})
}

// TestF1_F2_F75_LostAnswers: the answer to a Join is lost, and the repeated one finds the
// place; the answer to a Leave is lost, and the repeated one does not
// touch the same client's newer lock (F2, etcd#22082): that has another key as
// long as the older one's end is not confirmed.
func TestF1_F2_F75_LostAnswers(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, v backends.EtcdVersion) {
		t.Parallel()
		s := backends.SharedEtcd(t, v)
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
		line, err := witness.Inspect(ctx, "n")
		if err != nil || len(line.Tickets) != 1 || line.Tickets[0].ID != newer.ID {
			t.Errorf("the line is %+v, %v", line, err)
		}
		if ps, err := d.Leave(ctx, []driver.Ref{{Ticket: newer, State: driver.Held}}); err != nil || ps[0].State != driver.Held {
			t.Errorf("Leave: %v, %v", ps, err)
		}
	})
}
