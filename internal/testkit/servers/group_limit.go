package servers

import (
	"sync"
	"testing"
)

// maxGroups is the number of groups of servers that run at a time in one test
// binary. Tests that wait more than they work run side by side, and a dozen
// clusters would leave no time for tests that rely on a lease. A test that
// waits for room occupies one of the parallel tests meanwhile: -test.parallel
// has to be greater than the number of tests with groups, or else the parallel
// subtests of a test that has room may never run.
const maxGroups = 3

var serverGroups = struct {
	sync.Mutex
	running chan struct{}
	byTest  map[testing.TB]int
}{running: make(chan struct{}, maxGroups), byTest: make(map[testing.TB]int)}

// limitGroups waits for room for the test's group of servers, which it occupies
// until the end of the test. Another group of the same test needs no more room.
func limitGroups(t testing.TB) {
	serverGroups.Lock()
	serverGroups.byTest[t]++
	first := serverGroups.byTest[t] == 1
	serverGroups.Unlock()
	if first {
		serverGroups.running <- struct{}{}
	}
	t.Cleanup(func() {
		serverGroups.Lock()
		serverGroups.byTest[t]--
		last := serverGroups.byTest[t] == 0
		if last {
			delete(serverGroups.byTest, t)
		}
		serverGroups.Unlock()
		if last {
			<-serverGroups.running
		}
	})
}
