package cuts

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivertest/steps"
)

// Subject is a store whose drivers are cut off. Target, Open and TTL are needed.
type Subject struct {
	// Target is host and port of the server.
	Target string
	// Open opens a driver that reaches the server by this address, with one
	// connection if that can be said. All share the store.
	Open func(t testing.TB, addr string) driver.Driver
	TTL  time.Duration // of the tickets; no step may take as long

	// Listen returns the address for a proxy, for stores that tell their clients
	// where a server is; nil is a free port.
	Listen func() string
	// Named, Ready and Settles are as in [steps.Cutting].
	Named   func(name string) string
	Ready   func(ctx context.Context, d driver.Driver, line string) error
	Settles bool
	// Least is how many cuts there are at least; 0 is one for each request and
	// way. Not every request needs every server.
	Least int64
}

// give is how long a request is waited for whose connection has gone silent.
const give = 300 * time.Millisecond

// EveryStep cuts every message of every request, before it arrives and after it
// was carried out, by an end, a reset and silence. Asked again until it is
// answered, the request must leave the line as if it had been asked once, with
// a token above the last. It logs how many cuts there were.
func EveryStep(t *testing.T, s Subject) {
	var met, requests atomic.Int64
	t.Run("cuts", func(t *testing.T) {
		for _, st := range steps.All() {
			if st.Quick { // the servers decide, whatever the driver believes
				continue
			}
			requests.Add(1)
			for _, when := range []When{Before, After} {
				for _, how := range []How{Close, Reset, Silence} {
					name := fmt.Sprintf("%s, cut %s, connection %s", st.Name, when, how)
					t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
						t.Parallel()
						met.Add(s.cut(t, st, when, how))
					})
				}
			}
		}
	})
	t.Logf("%d cuts of %d requests", met.Load(), requests.Load())
	least := s.Least
	if least == 0 {
		least = 6 * requests.Load()
	}
	if met.Load() < least {
		t.Errorf("%d cuts: fewer than %d", met.Load(), least)
	}
}

// cut cuts one request in one way, message by message.
func (s *Subject) cut(t *testing.T, st steps.Step, when When, how How) (cuts int64) {
	listen := "127.0.0.1:0"
	if s.Listen != nil {
		listen = s.Listen()
	}
	p := At(t, listen, s.Target)
	c := &steps.Cutting{
		TB: t, Way: fmt.Sprintf("%s, connection %s", when, how), TTL: s.TTL,
		Arm:    func(k int) { p.Arm(k, when, how) },
		Disarm: p.Disarm,
		Cut:    s.Open(t, p.Addr()),
		Sure:   s.Open(t, s.Target),
		Ready:  s.Ready, Named: s.Named, Settles: s.Settles,
	}
	c.First = c.Cut
	if how == Silence {
		c.Give = give
	}
	for _, d := range []driver.Driver{c.Cut, c.Sure} {
		if err := d.Watch(t.Context(), func(string, driver.Place) {}); err != nil {
			t.Fatal(err)
		}
	}
	return c.Every(st)
}
