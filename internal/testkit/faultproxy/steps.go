package faultproxy

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
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
	// FastSteps adds the steps for drivers that go another way by what they believe of
	// a queue. Another driver prepares the queue before each step, so that this one
	// knows nothing of who waits unless it has looked.
	FastSteps bool
	// Named, Ready and Settles are as in [Cutting].
	Named   func(name string) string
	Ready   func(ctx context.Context, d driver.Driver, line string) error
	Settles bool
	// OneByOne says that each request finds out about one silent connection of a
	// pool at most, so that HalfOpen does not ask when a client locks other names
	// again.
	OneByOne bool
	// MinCuts is how many cuts there are at least; 0 is one for each request and
	// way. Not every request needs every server.
	MinCuts int64
}

// silenceLimit is the first limit for a request whose connection has gone
// silent.
const silenceLimit = 100 * time.Millisecond

// cutMode is a way to cut.
type cutMode struct {
	When
	How
}

// EveryStep cuts every message of every request, before it arrives and after it
// was carried out, by a close, a reset and silence. Repeated until it is
// answered, the request must leave the queue as if it had been sent once, with a
// token above the last. EveryStep logs the number of cuts.
func EveryStep(t *testing.T, s Subject) {
	var ways []cutMode
	for _, when := range []When{Before, After} {
		for _, how := range []How{Close, Reset, Silence} {
			ways = append(ways, cutMode{when, how})
		}
	}
	if s.Kill != nil {
		ways = append(ways, cutMode{Before, Killed})
	}
	sure := s.openWatching(t, s.Target)
	var requests int64
	met := make([]atomic.Int64, len(ways))
	t.Run("cuts", func(t *testing.T) {
		for _, st := range All() {
			if st.FastPath && !s.FastSteps { // the servers decide, whatever the driver believes
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
	least := s.MinCuts
	if least == 0 {
		least = int64(len(ways)) * requests
	}
	if all < least {
		t.Errorf("%d cuts: fewer than %d", all, least)
	}
}

// openWatching opens a driver that gets pushes.
func (s *Subject) openWatching(t testing.TB, addr string) driver.Driver {
	d := s.Open(t, addr)
	if err := d.Watch(t.Context(), func(string, driver.Status) {}); err != nil {
		t.Fatal(err)
	}
	return d
}

// cut cuts one request in one way, message by message.
func (s *Subject) cut(t *testing.T, st Step, w cutMode, sure driver.Driver) (cuts int64) {
	listen := "127.0.0.1:0"
	if s.Listen != nil {
		listen = s.Listen()
	}
	protocol := s.Protocol
	if protocol == nil {
		protocol = unknownProtocol
	}
	p := at(t, listen, s.Target, protocol, s.Kill)
	c := &Cutting{
		TB: t, Way: fmt.Sprintf("%s, connection %s", w.When, w.How), TTL: s.TTL,
		Arm:    func(k int) { p.Arm(k, w.When, w.How) },
		Disarm: p.Disarm,
		Cut:    s.openWatching(t, p.Addr()),
		Sure:   sure,
		Ready:  s.Ready, Named: s.Named, Settles: s.Settles,
	}
	c.First = c.Cut
	if s.FastSteps {
		c.First = c.Sure
	}
	if w.How == Silence {
		c.Give = silenceLimit
	}
	return c.CutAll(st)
}
