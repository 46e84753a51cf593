package faultproxy

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// Distant is a store at the end of a long wire. Targets and Open are needed.
type Distant struct {
	// Targets are hosts and ports of its servers.
	Targets []string
	// Open opens a driver that reaches the servers by these addresses, in the
	// order of Targets. All share the store.
	Open func(t testing.TB, addrs []string) driver.Driver
	// Listen is as in [Subject].
	Listen func() string
	// Many is how many places there are of each kind; 0 is 100.
	Many int
	// TTL of the places; 0 is 10 s.
	TTL time.Duration
	// A renewal of n places may take Trips + n/100 round trips of Trip; 0 are 12,
	// of 20 ms.
	Trips int
	Trip  time.Duration
}

const (
	nearTrip  = 4 * time.Millisecond // a round trip at which nothing may be lost
	batchSize = 100                  // places in one request, as the core has it
)

// ticketKind is a kind of ticket that a client may have hundreds of.
type ticketKind struct {
	name string
	// offered says whether a driver knows the kind; nil is always.
	offered func(driver.Traits) bool
	// make makes the i-th: first, which another client takes before, if it has an
	// id; own, in the state want; and last, which another one waits with behind.
	make  func(p *renewedTickets, i int) (first, own, last *driver.Ticket)
	state driver.State
}

func ticketKinds() []ticketKind {
	shared := func(tr driver.Traits) bool { return tr.Shared }
	return []ticketKind{
		{"mutex", nil, func(p *renewedTickets, i int) (a, b, c *driver.Ticket) {
			return nil, p.ticket("mutex", i, 1, 1), nil
		}, driver.Held},
		{"reader beside a reader", shared, func(p *renewedTickets, i int) (a, b, c *driver.Ticket) {
			return p.ticket("reader", i, 1, driver.RWLimit), p.ticket("reader", i, 1, driver.RWLimit), nil
		}, driver.Held},
		{"reader before a writer", shared, func(p *renewedTickets, i int) (a, b, c *driver.Ticket) {
			return p.ticket("rw", i, 1, driver.RWLimit), p.ticket("rw", i, 1, driver.RWLimit), p.ticket("rw", i, driver.RWLimit, driver.RWLimit)
		}, driver.Held},
		{"permit beside a permit", shared, func(p *renewedTickets, i int) (a, b, c *driver.Ticket) {
			return p.ticket("permit", i, 1, 3), p.ticket("permit", i, 1, 3), nil
		}, driver.Held},
		{"place of an owner", func(tr driver.Traits) bool { return tr.Owner }, func(p *renewedTickets, i int) (a, b, c *driver.Ticket) {
			a, b = p.ticket("owner", i, 1, 1), p.ticket("owner", i, 1, 1)
			a.Owner, b.Owner = "o", "o"
			return a, b, nil
		}, driver.Held},
		{"waiter", nil, func(p *renewedTickets, i int) (a, b, c *driver.Ticket) {
			return p.ticket("waiter", i, 1, 1), p.ticket("waiter", i, 1, 1), nil
		}, driver.Waiting},
		{"waiter in a line", nil, func(p *renewedTickets, i int) (a, b, c *driver.Ticket) {
			if i == 0 {
				a = p.ticket("line", 0, 1, 1)
			}
			return a, p.ticket("line", 0, 1, 1), nil
		}, driver.Waiting},
	}
}

// renewedTickets is the tickets of one client, of all kinds.
type renewedTickets struct {
	testing.TB
	far, near driver.Driver // by the wire, and beside the store
	ttl       time.Duration
	tag       string

	mu      sync.Mutex // one renewal at a time
	ids     int
	refs    map[string][]driver.Ref
	lost    map[string]map[string]bool // ids, by kind
	slowest time.Duration              // the longest time of a renewal that was answered
}

// Latency has a client far from its store take many tickets of each kind. One
// renewal of them costs a few round trips, however many they are, and no ticket
// is lost at a usual distance.
//
// Covers: F121.
func Latency(t testing.TB, s Distant) {
	t.Helper()
	if s.Many == 0 {
		s.Many = 100
	}
	if s.TTL == 0 {
		s.TTL = 10 * time.Second
	}
	if s.Trips == 0 {
		s.Trips = 12
	}
	if s.Trip == 0 {
		s.Trip = 20 * time.Millisecond
	}
	var proxies []*Proxy
	var addrs []string
	for _, target := range s.Targets {
		listen := "127.0.0.1:0"
		if s.Listen != nil {
			listen = s.Listen()
		}
		proxies = append(proxies, At(t, listen, target))
		addrs = append(addrs, proxies[len(proxies)-1].Addr())
	}
	delay := func(trip time.Duration) {
		for _, p := range proxies {
			p.Delay(trip / 2)
		}
	}
	p := &renewedTickets{
		TB: t, far: s.Open(t, addrs), near: s.Open(t, s.Targets), ttl: s.TTL,
		tag: fmt.Sprintf("%012x", time.Now().UnixNano()&0xffffffffffff), refs: make(map[string][]driver.Ref), lost: make(map[string]map[string]bool),
	}
	for _, d := range []driver.Driver{p.far, p.near} {
		if err := d.Watch(t.Context(), func(string, driver.Status) {}); err != nil {
			t.Errorf("Watch: %v", err)
		}
	}
	defer delay(0)
	ctx, cancel := context.WithCancel(t.Context())
	var keeper sync.WaitGroup
	defer keeper.Wait()
	defer cancel()
	keeper.Go(func() { p.keep(ctx) })
	var known []ticketKind
	for _, k := range ticketKinds() {
		if k.offered == nil || k.offered(p.far.Traits()) {
			known = append(known, k)
		}
	}
	near := time.Duration(0) // to renew all places without a delay
	for _, k := range known {
		p.take(k, s.Many)
		last := time.Duration(0)
		for n := 10; n <= s.Many; n *= 10 {
			last = p.measure(k, n, s.Trips, s.Trip, delay)
		}
		near += last
	}
	p.mu.Lock()
	delay(nearTrip)
	p.mu.Unlock()
	time.Sleep(s.TTL + s.TTL/3)
	p.mu.Lock()
	lost := maps.Clone(p.lost)
	delay(0)
	p.mu.Unlock()
	near = max(near, p.renewAll())
	for _, k := range known {
		n := len(lost[k.name])
		switch most := s.TTL / 6; {
		case n == 0:
		case near > most:
			t.Logf("%s: %d of %d are lost, but without a delay this machine takes %v to renew all kinds, more than %v", k.name, n, s.Many, near, most)
		default:
			t.Errorf("%s: %d of %d are lost at a round trip of %v and a TTL of %v", k.name, n, s.Many, nearTrip, s.TTL)
		}
	}
}

// renewAll renews all places once, whatever time that takes, and returns the time.
func (p *renewedTickets) renewAll() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	begun := time.Now()
	for name, refs := range p.refs {
		for from := 0; from < len(refs); from += batchSize {
			_ = p.renew(p.Context(), name, from, min(len(refs), from+batchSize), 30*time.Second)
		}
	}
	return time.Since(begun)
}

// ticket returns one that has no id yet.
func (p *renewedTickets) ticket(name string, i int, units, limit int64) *driver.Ticket {
	return &driver.Ticket{
		Name: fmt.Sprintf("far-%s-%s-%d", p.tag, name, i), Units: units, Limit: limit, TTL: p.ttl,
	}
}

// take takes n places of a kind. The first comes before all others.
func (p *renewedTickets) take(k ticketKind, n int) {
	p.Helper()
	join := func(d driver.Driver, t *driver.Ticket, want driver.State) {
		if t == nil {
			return
		}
		p.mu.Lock()
		p.ids++
		t.ID = fmt.Sprintf("00000000-0000-4000-8000-%s:%d", p.tag, p.ids)
		p.mu.Unlock()
		if d == p.near {
			t.ID = "f" + t.ID[1:]
			t.TTL = min(time.Minute, d.Traits().MaxTTL)
		}
		ctx, cancel := context.WithTimeout(p.Context(), 30*time.Second)
		defer cancel()
		if place, err := d.Join(ctx, t, true); err != nil || place.State != want {
			p.Errorf("%s: Join: %+v, %v", k.name, place, err)
		}
	}
	one := func(i int) {
		first, own, last := k.make(p, i)
		join(p.near, first, driver.Held)
		join(p.far, own, k.state)
		join(p.near, last, driver.Waiting)
		p.mu.Lock()
		defer p.mu.Unlock()
		p.refs[k.name] = append(p.refs[k.name], driver.Ref{Ticket: own, State: k.state})
	}
	one(0)
	var wg sync.WaitGroup
	next := make(chan int)
	for range 8 {
		wg.Go(func() {
			for i := range next {
				one(i)
			}
		})
	}
	for i := 1; i < n; i++ {
		next <- i
	}
	close(next)
	wg.Wait()
	if p.Failed() {
		p.FailNow()
	}
}

// keep renews all places every third of their TTL, as the core does, until ctx
// ends: a server that answers slowly gets more time, and a request without an answer
// is repeated.
func (p *renewedTickets) keep(ctx context.Context) {
	tick := time.NewTicker(p.ttl / 3)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		p.mu.Lock()
		kinds := make(map[string]int)
		for name, refs := range p.refs {
			kinds[name] = len(refs)
		}
		p.mu.Unlock()
		for name, n := range kinds {
			for from := 0; from < n && ctx.Err() == nil; from += batchSize {
				for again := 3; again > 0; again-- {
					p.mu.Lock()
					err := p.renew(ctx, name, from, min(n, from+batchSize), max(p.ttl/6, min(3*p.slowest, p.ttl/2)))
					p.mu.Unlock()
					if err == nil || ctx.Err() != nil {
						break
					}
				}
			}
		}
	}
}

// renew renews some of the places of a kind, which has to be one call at a time,
// and counts what is lost.
func (p *renewedTickets) renew(ctx context.Context, name string, from, to int, limit time.Duration) (failed error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	refs := p.refs[name][from:to]
	begun := time.Now()
	answers, err := p.far.Renew(ctx, refs)
	if err != nil {
		return err
	}
	p.slowest = max(p.slowest, time.Since(begun))
	for i, a := range answers {
		switch {
		case a.Err != nil:
			failed = a.Err
		case a.State == driver.Gone:
			if p.lost[name] == nil {
				p.lost[name] = make(map[string]bool)
			}
			p.lost[name][refs[i].ID] = true
		case a.State != refs[i].State:
			p.Errorf("%s: %v is %v", name, refs[i].State, a.State)
		}
	}
	return failed
}

// measure has one renewal of n places of a kind be no more than a few round
// trips. Other work of the machine may slow a few of them down, not all. A renewal that
// takes more ends the test: with such renewals the others would last for minutes. It
// returns the time without a delay.
func (p *renewedTickets) measure(k ticketKind, n, trips int, trip time.Duration, delay func(time.Duration)) (near time.Duration) {
	p.Helper()
	took := func(trip time.Duration) time.Duration {
		p.mu.Lock()
		defer p.mu.Unlock()
		delay(trip)
		defer delay(0)
		start := time.Now()
		if err := p.renew(p.Context(), k.name, 0, n, 30*time.Second); err != nil {
			p.Errorf("%s: Renew: %v", k.name, err)
		}
		return time.Since(start)
	}
	near = max(took(0), took(0))
	far := took(trip)
	most := func() time.Duration { return time.Duration(trips+n/batchSize)*trip + 3*near }
	for try := 0; far > most() && far < 4*most() && try < 6; try++ {
		near = max(near, took(0))
		far = min(far, took(trip))
	}
	p.Logf("%s: a renewal of %d: %v, and %v where a round trip takes %v more", k.name, n, near, far, trip)
	if far > most() {
		p.Errorf("%s: a renewal of %d takes %v where a round trip takes %v, want at most %v", k.name, n, far, trip, most())
		p.FailNow()
	}
	return near
}
