package zklock_test

import (
	"fmt"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/backends"
)

// TestCrowd: in a semaphore any holder may leave first, and each time the first
// one that waits is told, and nobody else, without anybody asking.
func TestCrowd(t *testing.T) {
	t.Parallel()
	s := backends.SharedZooKeeper(t)
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
	// Those who hold leave out of order.
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
