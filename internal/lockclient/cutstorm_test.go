package lockclient

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testkit/faults"
	"github.com/holdfast-go/holdfast/memlock"
)

// rough is a way to a store with random delays before and after each effect, and lost pushes.
type rough struct {
	*faults.Hooked
	mu    sync.Mutex
	rnd   *rand.Rand
	rough atomic.Bool
}

func (d *rough) draw(n int64) int64 { d.mu.Lock(); defer d.mu.Unlock(); return d.rnd.Int64N(n) }

func (d *rough) delay(ctx context.Context) error {
	if !d.rough.Load() {
		return nil
	}
	var dur time.Duration
	switch d.draw(4) {
	case 0:
		dur = time.Duration(d.draw(int64(800 * time.Millisecond)))
	case 1:
		dur = time.Duration(d.draw(int64(50 * time.Millisecond)))
	}
	select {
	case <-time.After(dur):
		return nil
	case <-ctx.Done():
		return driver.Wrap(driver.Unknown, context.Cause(ctx))
	}
}

func newRough(s *memlock.Store, rnd *rand.Rand) *rough {
	d := &rough{rnd: rnd}
	d.Hooked = &faults.Hooked{Driver: memlock.New(s), OnRequest: d.request, OnPush: d.push}
	return d
}

func (d *rough) push(id string, st driver.Status, notify func(string, driver.Status)) {
	if !d.rough.Load() || d.draw(4) > 0 {
		notify(id, st)
	}
}

func (d *rough) request(ctx context.Context, r *faults.Request) (any, error) {
	if r.Op == faults.Watch {
		return r.Send(ctx)
	}
	if err := d.delay(ctx); err != nil {
		return nil, err
	}
	a, err := r.Send(ctx)
	if e := d.delay(ctx); e != nil {
		return nil, e
	}
	return a, err
}

// wayOf is the way of one client to the servers, by a balancer: it may be cut.
type wayOf struct {
	mu      sync.Mutex
	rnd     *rand.Rand
	servers []http.Handler
	cut     atomic.Bool
	slow    atomic.Bool
}

// cutWriter is an answer whose client may be cut off before it is written.
type cutWriter struct {
	http.ResponseWriter
	cut *atomic.Bool
}

func (w *cutWriter) Write(b []byte) (int, error) {
	if w.cut.Load() {
		return 0, errors.New("cut")
	}
	return w.ResponseWriter.Write(b)
}

func (w *cutWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (b *wayOf) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b.mu.Lock()
	s := b.servers[b.rnd.IntN(len(b.servers))]
	before, after, gap := b.rnd.Int64N(int64(700*time.Millisecond)), b.rnd.Int64N(int64(700*time.Millisecond)), b.rnd.IntN(3)
	b.mu.Unlock()
	if b.cut.Load() {
		<-r.Context().Done()
		return
	}
	if r.URL.Path == "/v1/events" {
		ctx, cancel := context.WithTimeout(r.Context(), time.Duration(before)*20)
		defer cancel()
		s.ServeHTTP(&cutWriter{w, &b.cut}, r.WithContext(ctx))
		return
	}
	if b.slow.Load() && gap == 0 {
		time.Sleep(time.Duration(before))
	}
	s.ServeHTTP(&cutWriter{w, &b.cut}, r)
	if b.slow.Load() && gap == 1 {
		time.Sleep(time.Duration(after))
	}
}

// believed is a hold in which a client may believe.
type believed struct {
	h     *holdfast.Hold
	units int
	who   string
}

// belief knows who believes in holds.
type belief struct {
	mu    sync.Mutex
	holds []believed
	limit int
}

// granted notes a hold, and returns who else believes that it holds beside it.
func (b *belief) granted(h *holdfast.Hold, units int, who string) (wrong string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	sum := units
	var rest []believed
	for _, o := range b.holds {
		if o.h.Err() == nil && time.Now().Before(o.h.Deadline()) {
			sum += o.units
			rest = append(rest, o)
			if sum > b.limit {
				wrong += fmt.Sprintf(" %s (token %d) for %v more;", o.who, o.h.Token(), time.Until(o.h.Deadline()))
			}
		}
	}
	b.holds = append(rest, believed{h, units, who})
	if wrong != "" {
		wrong = fmt.Sprintf("%s is granted (token %d) while others believe:%s", who, h.Token(), wrong)
	}
	return wrong
}

// stormTTL is the TTL of the locks of a storm.
const stormTTL = 3 * time.Second

// storm is one schedule of clients behind balancers that choose a server for each request,
// with ways to servers and stores that are slow or cut off, and a client of the store itself.
type storm struct {
	*world
	*belief
	seed   uint64
	rw     bool
	direct *holdfast.Client
	begun  time.Time
}

func (s *storm) random(n uint64) *rand.Rand { return rand.New(rand.NewPCG(s.seed, n)) }

// take takes the lock, and returns the units of the hold.
func (s *storm) take(ctx context.Context, c *holdfast.Client, rnd *rand.Rand) (*holdfast.Hold, int, error) {
	ttl := holdfast.WithTTL(stormTTL)
	switch {
	case s.rw && rnd.IntN(2) == 0:
		h, err := c.RWMutex("n", ttl).RLock(ctx)
		return h, 1, err
	case s.rw:
		h, err := c.RWMutex("n", ttl).Lock(ctx)
		return h, s.limit, err
	}
	h, err := c.Mutex("n", ttl).Lock(ctx)
	return h, 1, err
}

// work takes the lock some times, and checks that nobody else believes that it holds then,
// that a hold which is called gone is gone, and that one which was released has left.
func (s *storm) work(t *testing.T, who string, c *holdfast.Client, rnd *rand.Rand) {
	for range 6 {
		ctx, cancel := context.WithCancel(context.Background())
		if rnd.IntN(3) == 0 {
			ctx, cancel = context.WithTimeout(ctx, time.Duration(rnd.Int64N(int64(8*time.Second))))
		}
		h, units, err := s.take(ctx, c, rnd)
		cancel()
		if err != nil {
			continue
		}
		if wrong := s.granted(h, units, who); wrong != "" {
			t.Errorf("%v: %s", time.Since(s.begun), wrong)
		}
		select {
		case <-time.After(time.Duration(rnd.Int64N(int64(4 * time.Second)))):
		case <-h.Context().Done():
			if e, ok := errors.AsType[*holdfast.LostError](context.Cause(h.Context())); ok && e.Reason == holdfast.LossGone {
				s.wantGone(t, h, who+" was told that its hold is gone")
			}
		}
		if err := h.Unlock(); err == nil && !s.rw { // readers of a client share a ticket
			s.wantGone(t, h, who+" has released")
		}
		time.Sleep(time.Duration(rnd.Int64N(int64(time.Second))))
	}
}

// wantGone fails the test if the store has a hold.
func (s *storm) wantGone(t *testing.T, h *holdfast.Hold, what string) {
	t.Helper()
	info, err := s.direct.Inspect(context.Background(), "n")
	for _, x := range info.Holders {
		if err == nil && x.Token>>8 == h.Token()>>8 {
			t.Errorf("%v: %s, and the store has it for %v", time.Since(s.begun), what, x.Left)
		}
	}
}

// TestStormOfClientsThatAreCutOff plays schedules of storms.
func TestStormOfClientsThatAreCutOff(t *testing.T) {
	for _, rw := range []bool{false, true} {
		for seed := range uint64(40) {
			t.Run(fmt.Sprintf("rw=%v/%d", rw, seed), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { playStorm(t, rw, seed) })
			})
		}
	}
}

func playStorm(t *testing.T, rw bool, seed uint64) {
	s := &storm{world: newWorld(t, 0), belief: &belief{limit: 1}, seed: seed, rw: rw, begun: time.Now()}
	if rw {
		s.limit = 1000
	}
	var servers []http.Handler
	var stores []*rough
	for i := range 2 {
		d := newRough(s.store, s.random(uint64(10+i)))
		stores = append(stores, d)
		servers = append(servers, s.startOver(fmt.Sprintf("server-%c:7420", 'a'+i), d))
	}
	s.direct = s.world.direct()
	var ways []*wayOf
	var working sync.WaitGroup
	for i := range 3 {
		way := &wayOf{rnd: s.random(uint64(20 + i)), servers: servers}
		ways = append(ways, way)
		s.hosts = []string{fmt.Sprintf("localhost:%d", 9000+i)}
		s.net.set(s.hosts[0], way)
		c := s.client()
		working.Go(func() { s.work(t, fmt.Sprintf("client %d", i), c, s.random(uint64(30+i))) })
	}
	working.Go(func() { s.work(t, "the client of the store", s.direct, s.random(99)) })
	done := make(chan struct{})
	go func() { working.Wait(); close(done) }()
	calm := func() {
		for _, w := range ways {
			w.cut.Store(false)
			w.slow.Store(false)
		}
		for _, d := range stores {
			d.rough.Store(false)
		}
	}
	toggle := func(b *atomic.Bool) { b.Store(!b.Load()) }
	rnd := s.random(1)
	for over := false; !over; {
		switch rnd.IntN(5) {
		case 0, 1:
			toggle(&ways[rnd.IntN(len(ways))].cut)
		case 2:
			toggle(&ways[rnd.IntN(len(ways))].slow)
		default:
			toggle(&stores[rnd.IntN(len(stores))].rough)
		}
		if time.Since(s.begun) > 2*time.Minute {
			calm()
		}
		select {
		case <-done:
			over = true
		case <-time.After(time.Duration(rnd.Int64N(int64(3 * time.Second)))):
			if time.Since(s.begun) > 10*time.Minute {
				t.Fatalf("not over after %v", time.Since(s.begun))
			}
		}
	}
	calm()
	time.Sleep(20 * time.Second)
	if info, err := s.direct.Inspect(context.Background(), "n"); err != nil || len(info.Holders)+len(info.Waiters) != 0 {
		t.Errorf("left behind: %+v, %v", info, err)
	}
}
