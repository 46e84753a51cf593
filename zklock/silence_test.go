package zklock_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
)

// TestF105_UnsentRequestsEnd breaks a connection before the requests of many
// calls were written, and lets no other one be made. It checks that the calls
// end, although their contexts do not, and that a call that begins then ends at
// once.
func TestF105_UnsentRequestsEnd(t *testing.T) {
	t.Parallel()
	s := servers.SharedZooKeeper(t)
	name := unique("unsent")
	d, w := openWire(t, s.Addrs(), s.Tick)
	join(t, d, ticket2(name, 0), driver.Held)
	var stalled atomic.Bool
	w.on(func(int32) cut { stalled.Store(true); return stall })
	const calls = 40 // more than the client library queues
	errs := make(chan error, calls)
	for i := range calls {
		go func() {
			_, err := d.Join(context.WithoutCancel(t.Context()), ticket2(name, 1+i), false)
			errs <- err
		}()
	}
	until(t, "a request hangs", stalled.Load)
	time.Sleep(50 * time.Millisecond) // nothing shows when the client library has queued the others
	w.lose()
	w.on(nil)
	limit := time.After(30 * time.Second)
	for i := range calls {
		select {
		case err := <-errs:
			if class := driver.ClassOf(err); err == nil || class != driver.Unknown && class != driver.Unavailable {
				t.Errorf("a call ended with %v", err)
			}
		case <-limit:
			t.Fatalf("%d of %d calls hang", calls-i, calls)
		}
	}
	if _, err := d.Join(t.Context(), ticket2(name, calls+1), false); driver.ClassOf(err) != driver.Unavailable {
		t.Errorf("without a connection: %v", err)
	}
	w.setDark(false)
	joinUntil(t, d, ticket2(unique("unsent"), 1))
}

// TestF105_GoneIsTheStoresWord checks a server that is silent when a ticket's
// time is over: neither Renew nor Join answers Gone, which is the server's
// word.
func TestF105_GoneIsTheStoresWord(t *testing.T) {
	t.Parallel()
	s := servers.ZooKeeper(t, servers.ZooKeeperOptions{})
	d := open(t, s.URL("", ""))
	defer d.Close()
	holder := ticket2("n", 1)
	join(t, d, holder, driver.Held)
	var waiter *driver.Ticket
	var joined time.Time
	for n := 2; ; n++ {
		waiter = ticket2("n", n)
		waiter.TTL = 2 * time.Second
		joined = time.Now()
		join(t, d, waiter, driver.Waiting)
		time.Sleep(time.Until(joined.Add(waiter.TTL - 300*time.Millisecond)))
		s.Members[0].Pause(t)
		if time.Since(joined) < waiter.TTL {
			break
		}
		// The machine is busy: the ticket's time was over before the server
		// fell silent.
		s.Members[0].Resume(t)
		if n == 20 {
			t.Fatal("in none of 19 tries the server fell silent in time")
		}
	}
	time.Sleep(time.Until(joined.Add(driver.Keep(waiter.TTL) + 20*time.Millisecond)))
	for range 5 {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		ps, err := d.Renew(ctx, []driver.Ref{{Ticket: waiter, State: driver.Waiting}})
		if err == nil && ps[0].Err == nil {
			t.Errorf("Renew: %+v, and nobody has asked the server", ps)
		}
		if p, err := d.Join(ctx, waiter, true); err == nil {
			t.Errorf("Join: %+v, and nobody has asked the server", p)
		}
		cancel()
	}
	s.Members[0].Resume(t)
	until(t, "the ticket is gone", func() bool {
		ps, err := d.Renew(t.Context(), []driver.Ref{{Ticket: waiter, State: driver.Waiting}})
		return err == nil && ps[0].Err == nil && ps[0].State == driver.Gone
	})
}
