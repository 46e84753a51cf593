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
	// Protocol reads what a new connection says; nil takes what one read brings
	// for a message.
	Protocol func() Protocol
	// Kill ends a connection at the server, by its id in the protocol, and returns
	// when it is gone; nil leaves that way out.
	Kill func(id uint32)
	// Quick adds the steps for drivers that go another way by what they believe of
	// a line. Another driver asks for what comes before each step, so that this one
	// knows nothing of who waits unless it has looked.
	Quick bool
	// Named, Ready and Settles are as in [steps.Cutting].
	Named   func(name string) string
	Ready   func(ctx context.Context, d driver.Driver, line string) error
	Settles bool
	// Least is how many cuts there are at least; 0 is one for each request and
	// way. Not every request needs every server.
	Least int64
}

// give is how long a request is waited for whose connection has gone silent, at
// first.
const give = 100 * time.Millisecond

// way is a way to cut.
type way struct {
	When
	How
}

// EveryStep cuts every message of every request, before it arrives and after it
// was carried out, by an end, a reset and silence. Asked again until it is
// answered, the request must leave the line as if it had been asked once, with
// a token above the last. It logs how many cuts there were.
func EveryStep(t *testing.T, s Subject) {
	var ways []way
	for _, when := range []When{Before, After} {
		for _, how := range []How{Close, Reset, Silence} {
			ways = append(ways, way{when, how})
		}
	}
	if s.Kill != nil {
		ways = append(ways, way{Before, Killed})
	}
	sure := s.watched(t, s.Target)
	var requests int64
	met := make([]atomic.Int64, len(ways))
	t.Run("cuts", func(t *testing.T) {
		for _, st := range steps.All() {
			if st.Quick && !s.Quick { // the servers decide, whatever the driver believes
				continue
			}
			requests++
			for i, w := range ways {
				name := fmt.Sprintf("%s, cut %s, connection %s", st.Name, w.When, w.How)
				t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
					t.Parallel()
					met[i].Add(s.cut(t, st, w, sure))
				})
			}
		}
	})
	all, each := int64(0), make([]string, len(ways))
	for i, w := range ways {
		all += met[i].Load()
		each[i] = fmt.Sprintf("%d %s and %s", met[i].Load(), w.When, w.How)
	}
	t.Logf("%d cuts of %d requests: %s", all, requests, strings.Join(each, ", "))
	least := s.Least
	if least == 0 {
		least = int64(len(ways)) * requests
	}
	if all < least {
		t.Errorf("%d cuts: fewer than %d", all, least)
	}
}

// watched opens a driver that is told of grants.
func (s *Subject) watched(t testing.TB, addr string) driver.Driver {
	d := s.Open(t, addr)
	if err := d.Watch(t.Context(), func(string, driver.Place) {}); err != nil {
		t.Fatal(err)
	}
	return d
}

// cut cuts one request in one way, message by message.
func (s *Subject) cut(t *testing.T, st steps.Step, w way, sure driver.Driver) (cuts int64) {
	listen := "127.0.0.1:0"
	if s.Listen != nil {
		listen = s.Listen()
	}
	protocol := s.Protocol
	if protocol == nil {
		protocol = reads
	}
	p := at(t, listen, s.Target, protocol, s.Kill)
	c := &steps.Cutting{
		TB: t, Way: fmt.Sprintf("%s, connection %s", w.When, w.How), TTL: s.TTL,
		Arm:    func(k int) { p.Arm(k, w.When, w.How) },
		Disarm: p.Disarm,
		Cut:    s.watched(t, p.Addr()),
		Sure:   sure,
		Ready:  s.Ready, Named: s.Named, Settles: s.Settles,
	}
	c.First = c.Cut
	if s.Quick {
		c.First = c.Sure
	}
	if w.How == Silence {
		c.Give = give
	}
	return c.Every(st)
}
