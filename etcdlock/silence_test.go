package etcdlock_test

import (
	"context"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/etcdlock"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
	"google.golang.org/grpc"
)

// TestF105_GoneIsTheStoresWord checks that neither Renew nor Join answers Gone
// for a waiting ticket while no request that writes is answered, for longer
// than the TTL. Gone is the store's word, and comes once the store answers
// again.
func TestF105_GoneIsTheStoresWord(t *testing.T) {
	t.Parallel()
	s := servers.SharedEtcd(t, servers.EtcdNewest)
	var away outage
	d, err := etcdlock.New(dialed(t, s, grpc.WithChainUnaryInterceptor(away.call)), &etcdlock.Options{Prefix: "silence/"})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	other := open(t, s, "prefix=silence/")
	ticket := func(id string, ttl time.Duration) *driver.Ticket {
		return &driver.Ticket{ID: id, Name: "n", Units: 1, Limit: 1, TTL: ttl}
	}
	holder, waiter := ticket("holder:1", time.Minute), ticket("waiter:1", time.Second)
	if p, err := other.Join(ctx, holder, true); err != nil || p.State != driver.Held {
		t.Fatalf("%+v, %v", p, err)
	}
	if p, err := d.Join(ctx, waiter, true); err != nil || p.State != driver.Waiting {
		t.Fatalf("%+v, %v", p, err)
	}
	away.set(true)
	ask := func(what string, f func(context.Context) (driver.State, error)) {
		c, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
		defer cancel()
		if state, err := f(c); err == nil && state == driver.Gone {
			t.Errorf("%s: the ticket is gone, and nobody has asked the store", what)
		}
	}
	for end := time.Now().Add(2500 * time.Millisecond); time.Now().Before(end); {
		ask("Renew", func(c context.Context) (driver.State, error) {
			ps, err := d.Renew(c, []driver.Ref{{Ticket: waiter, State: driver.Waiting}})
			if err == nil {
				err = ps[0].Err
			}
			if err != nil {
				return 0, err
			}
			return ps[0].State, nil
		})
		ask("Join", func(c context.Context) (driver.State, error) {
			p, err := d.Join(c, waiter, true)
			return p.State, err
		})
	}
	eventually(t, "the waiter's lease has ended", func() bool {
		queue, err := other.Inspect(ctx, waiter.Name)
		return err == nil && len(queue.Tickets) == 1
	})
	away.set(false)
	c, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	ps, err := d.Renew(c, []driver.Ref{{Ticket: waiter, State: driver.Waiting}})
	if err != nil || ps[0].Err != nil || ps[0].State != driver.Gone {
		t.Errorf("with the store back: %+v, %v; want gone", ps, err)
	}
	if queue, err := other.Inspect(ctx, waiter.Name); err != nil || len(queue.Tickets) != 1 {
		t.Errorf("the line is %+v, %v; want the holder alone", queue, err)
	}
	if _, err := other.Leave(ctx, []driver.Ref{{Ticket: holder, State: driver.Held}}); err != nil {
		t.Error(err)
	}
}
