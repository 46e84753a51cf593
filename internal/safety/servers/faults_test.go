package servers

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/safety/torture"
	"github.com/holdfast-go/holdfast/internal/testkit/faultproxy"
)

// faultSource decides which of several servers is struck, and how.
type faultSource struct {
	mu  sync.Mutex
	rnd *rand.Rand
}

func newDice(seed uint64) *faultSource { return &faultSource{rnd: rand.New(rand.NewPCG(seed, 2))} }

func (d *faultSource) intN(n int) int {
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

// oneFault is a fault that begins at once and is over after a while.
func oneFault(kind string, begin func() error, end func()) torture.Fault {
	return torture.Fault{Kind: kind, Weight: 20, Begin: func(int) (func() error, error) {
		if err := begin(); err != nil {
			return nil, err
		}
		return func() error { end(); return nil }, nil
	}}
}

// killed is a fault that kills one of the servers; back brings it back.
func killed[N node](rnd *faultSource, kind string, nodes []N, back func(N)) torture.Fault {
	return torture.Fault{Kind: kind, Weight: 20, Begin: func(int) (func() error, error) {
		n := nodes[rnd.intN(len(nodes))]
		n.Kill()
		return func() error { back(n); return nil }, nil
	}}
}

// stopped is a fault that stops one of the servers for a while: it keeps its
// connections and answers nothing.
func stopped[N node](t *testing.T, rnd *faultSource, nodes []N) torture.Fault {
	return torture.Fault{Kind: "server stopped", Weight: 20, Begin: func(int) (func() error, error) {
		n := nodes[rnd.intN(len(nodes))]
		n.Pause(t)
		return func() error { n.Resume(t); return nil }, nil
	}}
}

// dataKeepingFaults returns the faults of servers that keep their data.
func dataKeepingFaults[N node](t *testing.T, rnd *faultSource, nodes []N, back func(N)) []torture.Fault {
	return []torture.Fault{killed(rnd, "server killed", nodes, back), stopped(t, rnd, nodes)}
}

// proxied puts a proxy between each client and the only server of a store, at
// addr, and adds the faults of a proxy: the client is cut off both ways,
// receives no answers, or has its connections cut in the middle of a request.
func (s deployment) proxied(t *testing.T, rnd *faultSource, addr string) deployment {
	var proxies []*faultproxy.Proxy
	for range clients {
		proxies = append(proxies, faultproxy.Between(t, addr))
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
		torture.Fault{Kind: "answers cut off", Weight: 10, Client: true, Begin: split(false)},
		torture.Fault{Kind: "connections cut", Weight: 20, Client: true, Begin: func(client int) (func() error, error) {
			p := proxies[client]
			when := []faultproxy.When{faultproxy.Before, faultproxy.After}[rnd.intN(2)]
			how := []faultproxy.How{faultproxy.Close, faultproxy.Reset, faultproxy.Silence}[rnd.intN(3)]
			p.Arm(1+rnd.intN(5), when, how)
			return func() error { p.Disarm(); return nil }, nil
		}})
	return s
}

// awaitCondition waits for a condition of the servers.
func awaitCondition(what string, ok func() bool) error {
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			return fmt.Errorf("after a minute: still not: %s", what)
		}
	}
	return nil
}
