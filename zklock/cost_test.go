package zklock_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivertest"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
)

// uuidOf returns a UUID like those in the core's ids.
func uuidOf(n int) string { return fmt.Sprintf("%08x-1111-4111-8111-111111111111", n) }

var serial atomic.Int64

func ticket(name string, client int) *driver.Ticket {
	return &driver.Ticket{
		ID: fmt.Sprintf("%s:%d", uuidOf(client), serial.Add(1)), Name: name, Units: 1, Limit: 1,
		TTL: 10 * time.Second, Meta: fmt.Sprintf("client %d", client),
	}
}

func join(t *testing.T, d driver.Driver, tk *driver.Ticket, want driver.State) driver.Status {
	t.Helper()
	p, err := d.Join(t.Context(), tk, true)
	if err != nil || p.State != want {
		t.Fatalf("Join(%s): %v, %v; want %v", tk.Meta, p.State, err, want)
	}
	return p
}

func leave(t *testing.T, d driver.Driver, tk *driver.Ticket, want driver.State) {
	t.Helper()
	ps, err := d.Leave(t.Context(), []driver.Ref{{Ticket: tk}})
	if err != nil || ps[0].Err != nil || ps[0].State != want {
		t.Fatalf("Leave(%s): %+v, %v; want %v", tk.Meta, ps, err, want)
	}
}

// TestRequestsOfAcquisition counts the requests of an acquisition: at most 4 when one ticket
// is ahead and 5 otherwise. It also counts those of go-zookeeper's own Lock for
// the same.
func TestRequestsOfAcquisition(t *testing.T) {
	t.Parallel()
	s := servers.SharedZooKeeper(t)
	const n = 8
	var ds [n]driver.Driver
	var ws [n]*wire
	var ps [n]*pushes
	for i := range n {
		d, w := openWire(t, s.Addrs(), s.Tick)
		ds[i], ws[i], ps[i] = d, w, watch(t, d)
		warm := ticket("requests/warm", i)
		join(t, d, warm, driver.Held)
		leave(t, d, warm, driver.Held)
	}
	for _, ahead := range []int{0, 1, n - 1} {
		name := fmt.Sprintf("requests/%d", ahead)
		parents := ticket(name, 0) // makes the queue's path, which happens once
		join(t, ds[0], parents, driver.Held)
		leave(t, ds[0], parents, driver.Held)
		for _, w := range ws {
			w.reset()
		}
		var ts []*driver.Ticket
		for i := range ahead + 1 {
			ts = append(ts, ticket(name, i))
			if i == 0 {
				join(t, ds[i], ts[i], driver.Held)
			} else {
				join(t, ds[i], ts[i], driver.Waiting)
			}
		}
		for i, tk := range ts {
			if i > 0 {
				until(t, "the next one is told", func() bool { return ps[i].state(tk.ID) == driver.Held })
			}
			leave(t, ds[i], tk, driver.Held)
		}
		most := map[int]int{0: 3, 1: 4, n - 1: 5}[ahead]
		total, each := ws[ahead].ops()
		// On a slow machine tickets grow older than watchAfter: their own nodes are
		// watched then, for one request more, and never two.
		own := min(max(0, each[opGet]-1), 1)
		t.Logf("with %d ahead: %d requests, %v", ahead, total, each)
		if total-own > most {
			t.Errorf("with %d ahead an acquisition took %d requests, at most %d are allowed", ahead, total-own, most)
		}
		if lists := each[opChildren]; ahead <= 1 && lists != 1 {
			t.Errorf("with %d ahead the line was listed %d times", ahead, lists)
		}
	}
	t.Logf("go-zookeeper's Lock with one ahead: %d requests", theirRequests(t, s))
}

// theirRequests returns the number of requests that go-zookeeper's Lock takes
// where Holdfast takes 4.
func theirRequests(t *testing.T, s *servers.ZooKeeperServer) int {
	w := newWire()
	a := raw(t, s.Addrs()...)
	b, events, err := zk.Connect(s.Addrs(), 10*time.Second, zk.WithDialer(w.Dial), zk.WithLogInfo(false))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		b.Close()
		for range events {
		}
	}()
	la, lb := zk.NewLock(a, "/theirs", zk.WorldACL(zk.PermAll)), zk.NewLock(b, "/theirs", zk.WorldACL(zk.PermAll))
	if err := la.Lock(); err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() { done <- lb.Lock() }()
	until(t, "theirs waits", func() bool { return len(children(t, a, "/theirs")) == 2 })
	until(t, "theirs watches", func() bool { _, each := w.ops(); return each[opGet] == 1 })
	if err := la.Unlock(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if err := lb.Unlock(); err != nil {
		t.Fatal(err)
	}
	n, _ := w.ops()
	return n
}

// TestRenewalsAreBatched checks that one request renews 200 held tickets once
// they are watched.
func TestRenewalsAreBatched(t *testing.T) {
	t.Parallel()
	s := servers.SharedZooKeeper(t)
	d, w := openWire(t, s.Addrs(), s.Tick)
	var refs []driver.Ref
	for i := range 200 {
		tk := ticket(fmt.Sprintf("batch/%d", i), 1)
		tk.TTL = 5 * time.Minute // long enough for a slow machine
		join(t, d, tk, driver.Held)
		refs = append(refs, driver.Ref{Ticket: tk, State: driver.Held})
	}
	for round := range 3 {
		w.reset()
		ps, err := d.Renew(t.Context(), refs)
		if err != nil {
			t.Fatal(err)
		}
		for i, p := range ps {
			if p.State != driver.Held || p.Err != nil {
				t.Fatalf("ticket %d is %v, %v", i, p.State, p.Err)
			}
		}
		if n, each := w.ops(); round > 0 && n > 0 {
			t.Errorf("round %d: %d requests besides syncs: %v", round, n, each)
		}
	}
	if _, err := d.Leave(t.Context(), refs); err != nil {
		t.Fatal(err)
	}
}

var _ drivertest.T = (*testing.T)(nil)
