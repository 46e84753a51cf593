package zklock_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
)

// TestWaiterBehindSeveralHolders checks that in a semaphore, where any holder may leave first, each
// release notifies the first waiter, and no other one, without a request of the
// waiter.
func TestWaiterBehindSeveralHolders(t *testing.T) {
	t.Parallel()
	s := servers.SharedZooKeeper(t)
	name := unique("crowd")
	const n, size = 7, 3
	var ds [n]driver.Driver
	var ps [n]*pushes
	var ts [n]*driver.Ticket
	for i := range n {
		d, _ := openWire(t, s.Addrs(), 2*s.Tick)
		ds[i], ps[i] = d, watch(t, d)
		ts[i] = ticket2(name, i)
		ts[i].Limit = size
		want := driver.Held
		if i >= size {
			want = driver.Waiting
		}
		join(t, d, ts[i], want)
	}
	// The holders leave out of order.
	for turn, leaver := range []int{1, 2, 3, 0} {
		leave(t, ds[leaver], ts[leaver], driver.Held)
		next := size + turn
		until(t, fmt.Sprintf("number %d is told", next), func() bool { return ps[next].state(ts[next].ID) == driver.Held })
		for i := next + 1; i < n; i++ {
			if st := ps[i].state(ts[i].ID); st != 0 {
				t.Errorf("at the turn of number %d, number %d is told that it is %v", next, i, st)
			}
		}
	}
	for _, i := range []int{4, 5, 6} {
		leave(t, ds[i], ts[i], driver.Held)
	}
}

// TestCrowdCosts counts the requests of each ticket in a semaphore's queue.
// Only the first waiter watches the queue: a ticket that joins costs this
// waiter one listing and the other waiters nothing, and a permit that is freed
// wakes this waiter alone.
func TestCrowdCosts(t *testing.T) {
	t.Parallel()
	s := servers.SharedZooKeeper(t)
	name := unique("crowd-costs")
	const n, size = 7, 2
	var ds [n]driver.Driver
	var ws [n]*wire
	var ps [n]*pushes
	var ts [n]*driver.Ticket
	come := func(i int) {
		t.Helper()
		ts[i] = ticket2(name, i)
		ts[i].Limit = size
		ts[i].TTL = 5 * time.Minute // long enough for a slow machine
		join(t, ds[i], ts[i], []driver.State{driver.Held, driver.Waiting}[min(i/size, 1)])
	}
	for i := range n {
		d, w := openWire(t, s.Addrs(), 2*s.Tick)
		ds[i], ws[i], ps[i] = d, w, watch(t, d)
		w.reset()
	}
	for i := range 4 {
		come(i)
	}
	lists := func(i int) int {
		_, each := ws[i].ops()
		return each[opChildren]
	}
	const first = 2 // index of the first waiter
	before := lists(first)
	for i := 4; i < n; i++ {
		come(i)
		until(t, "the first one has looked", func() bool { return lists(first) > before })
		before = lists(first)
	}
	for i := first; i < n; i++ {
		most := 1 // the listing of its own Join
		if i == first {
			most += 1 + n - 3 // one when it became the first waiter, and one for each ticket that joined
		}
		if k := lists(i); k > most {
			t.Errorf("number %d lists the line %d times, at most %d are allowed", i, k, most)
		}
		if ps[i].state(ts[i].ID) != 0 {
			t.Errorf("number %d is told something", i)
		}
	}
	for _, w := range ws {
		w.reset()
	}
	leave(t, ds[0], ts[0], driver.Held)
	until(t, "the first one holds", func() bool { return ps[first].state(ts[first].ID) == driver.Held })
	until(t, "the next one is the first", func() bool { return lists(first+1) >= 1 })
	for i := first + 2; i < n; i++ {
		if k := lists(i); k > 0 {
			t.Errorf("at the turn of number %d, number %d lists the line %d times", first, i, k)
		}
	}
	leave(t, ds[1], ts[1], driver.Held)
	for i := first; i < n; i++ {
		until(t, "it is its turn", func() bool {
			got, err := ds[i].Renew(t.Context(), []driver.Ref{{Ticket: ts[i]}})
			return err == nil && got[0].State == driver.Held
		})
		leave(t, ds[i], ts[i], driver.Held)
	}
}
