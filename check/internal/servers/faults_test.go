package servers

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/check/torture"
	"github.com/holdfast-go/holdfast/drivertest/cuts"
)

// dice decide which server of several is struck, and how.
type dice struct {
	mu  sync.Mutex
	rnd *rand.Rand
}

func newDice(seed uint64) *dice { return &dice{rnd: rand.New(rand.NewPCG(seed, 2))} }

func (d *dice) roll(n int) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.rnd.IntN(n)
}

// node is a server that can be struck.
type node interface {
	Kill()
	Pause(t testing.TB)
	Resume(t testing.TB)
}

// once is a fault that begins at once and is over after a while.
func once(kind string, begin func() error, end func()) torture.Fault {
	return torture.Fault{Kind: kind, Weight: 20, Begin: func(int) (func() error, error) {
		if err := begin(); err != nil {
			return nil, err
		}
		return func() error { end(); return nil }, nil
	}}
}

// killed kills one of the servers, and back brings it back.
func killed[N node](rnd *dice, kind string, nodes []N, back func(N)) torture.Fault {
	return torture.Fault{Kind: kind, Weight: 20, Begin: func(int) (func() error, error) {
		n := nodes[rnd.roll(len(nodes))]
		n.Kill()
		return func() error { back(n); return nil }, nil
	}}
}

// stopped stops one of the servers for a while: it keeps its connections and
// answers nothing.
func stopped[N node](t *testing.T, rnd *dice, nodes []N) torture.Fault {
	return torture.Fault{Kind: "server stopped", Weight: 20, Begin: func(int) (func() error, error) {
		n := nodes[rnd.roll(len(nodes))]
		n.Pause(t)
		return func() error { n.Resume(t); return nil }, nil
	}}
}

// strikes are the faults of servers that keep their data.
func strikes[N node](t *testing.T, rnd *dice, nodes []N, back func(N)) []torture.Fault {
	return []torture.Fault{killed(rnd, "server killed", nodes, back), stopped(t, rnd, nodes)}
}

// proxied puts a proxy between each client and the only server of a store, at
// addr, and adds what can happen there: the client is cut off both ways, hears
// no answers, or has its connections cut in the middle of a request.
func (s scene) proxied(t *testing.T, rnd *dice, addr string) scene {
	var proxies []*cuts.Proxy
	for range clients {
		proxies = append(proxies, cuts.Between(t, addr))
	}
	if strings.Count(s.url, addr) != 1 {
		t.Fatalf("the URL does not name %s once", addr)
	}
	s.of = func(client int) string { return strings.Replace(s.url, addr, proxies[client].Addr(), 1) }
	split := func(both bool) func(int) (func() error, error) {
		return func(client int) (func() error, error) {
			proxies[client].Split(both)
			return func() error { proxies[client].Heal(); return nil }, nil
		}
	}
	s.own = append(s.own,
		torture.Fault{Kind: "cut off", Weight: 10, Client: true, Begin: split(true)},
		torture.Fault{Kind: "deaf", Weight: 10, Client: true, Begin: split(false)},
		torture.Fault{Kind: "connections cut", Weight: 20, Client: true, Begin: func(client int) (func() error, error) {
			p := proxies[client]
			when := []cuts.When{cuts.Before, cuts.After}[rnd.roll(2)]
			how := []cuts.How{cuts.Close, cuts.Reset, cuts.Silence}[rnd.roll(3)]
			p.Arm(1+rnd.roll(5), when, how)
			return func() error { p.Disarm(); return nil }, nil
		}})
	return s
}

// must waits for a condition of the servers.
func must(what string, ok func() bool) error {
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			return fmt.Errorf("after a minute: still not: %s", what)
		}
	}
	return nil
}
