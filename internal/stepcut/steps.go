package stepcut

import (
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivertest/steps"
)

// Server is a store whose connections are cut. All functions fail the test
// themselves.
type Server struct {
	Addr     string // host:port of the server
	Protocol func() Protocol
	// Open opens a client that reaches the server at addr, with a pool of one
	// connection. Its tables are those of all clients of this test.
	Open func(addr string) driver.Driver
	// Kill ends a connection at the server, and returns when it is gone.
	Kill func(id uint32)
}

// Run cuts every round trip of every request: before it is sent, after it was
// answered, and by an operator. Asked again, the request leaves the line as if
// it had been asked once. It prints how many cuts those were.
func Run(t *testing.T, s Server) {
	t.Helper()
	c := newCutter(t, s.Addr, s.Protocol, s.Kill)
	d, sure := s.Open(c.l.Addr().String()), s.Open(s.Addr)
	counts := map[string]int64{}
	all := steps.All()
	for _, st := range all {
		for _, how := range []string{cutBefore, cutAfter, cutKilled} {
			// Another client asks for what comes before: this one is to know
			// nothing of who waits, unless it has looked.
			x := steps.Cutting{
				TB: t, Way: how, TTL: time.Minute,
				Arm: func(k int) { c.arm(k, how) }, Disarm: c.disarm,
				Cut: d, First: sure, Sure: sure,
			}
			n := x.Every(st)
			if n == 0 {
				t.Errorf("%s was never cut %s", st.Name, how)
			}
			counts[how] += n
		}
	}
	sum := counts[cutBefore] + counts[cutAfter] + counts[cutKilled]
	t.Logf("%d cuts of %d requests: %v", sum, len(all), counts)
}
