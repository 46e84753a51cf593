package backends

import (
	"sync"
	"testing"
)

// groups is how many groups of servers run at a time in one test binary. Tests
// that wait more than they work run side by side, and a dozen clusters would
// leave no time for those that count on a lease.
const groups = 3

var crowd = struct {
	sync.Mutex
	room chan struct{}
	in   map[testing.TB]int
}{room: make(chan struct{}, groups), in: make(map[testing.TB]int)}

// enterRoom waits until there is room for the test's group of servers, until
// the end of the test. Another group of the same test needs no more.
func enterRoom(t testing.TB) {
	crowd.Lock()
	crowd.in[t]++
	first := crowd.in[t] == 1
	crowd.Unlock()
	if first {
		crowd.room <- struct{}{}
	}
	t.Cleanup(func() {
		crowd.Lock()
		crowd.in[t]--
		last := crowd.in[t] == 0
		if last {
			delete(crowd.in, t)
		}
		crowd.Unlock()
		if last {
			<-crowd.room
		}
	})
}
