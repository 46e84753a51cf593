package holdfast_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memlock"
)

var (
	stressSeeds = flag.Uint64("stress.seeds", 250, "how many worlds TestRandomWorldsKeepGuarantees makes")
	stressFirst = flag.Uint64("stress.first", 1, "the seed of its first world")
)

// TestRandomWorldsKeepGuarantees lets several clients do everything at random over a store that
// fails at random, and checks the guarantees: one world for each seed, in fake
// time. A seed fixes the attempts of each client and the faults of its driver,
// but not the order of goroutines within an instant. Repeat one seed with
//
//	go test -run TestRandomWorldsKeepGuarantees -stress.seeds 1 -stress.first SEED
func TestRandomWorldsKeepGuarantees(t *testing.T) {
	for seed := *stressFirst; seed < *stressFirst+*stressSeeds; seed++ {
		w := &world{seed: seed}
		synctest.Test(t, w.run)
		if t.Failed() {
			t.Fatalf("seed %d: %s", seed, w)
		}
	}
}

// world is one run. Its level and exposed determine which errors are expected.
type world struct {
	t       *testing.T
	seed    uint64
	level   float64 // of faults; 0 is a world without faults
	exposed bool    // the store loses data, or an operator breaks tickets
	lag     time.Duration
	ttl     time.Duration
	store   *memlock.Store
	clients []*holdfast.Client
	storms  []*storm
	closed  []bool // clients that were closed halfway

	detached bool // some ticket was detached

	mu     sync.Mutex
	inside map[string][]inside
	last   map[string]uint64 // the greatest token of a name
	writer map[string]uint64 // that of an exclusive hold
	told   map[*holdfast.LostError]int
	losses map[*holdfast.LostError]bool
	doing  map[string]int // operations in progress, for the report of a hang
}

// inside is a goroutine that believes that it holds.
type inside struct {
	h     *holdfast.Hold
	units int64
	owner string
}

// limits are the limits of the names in use; each name is one kind of lock.
var limits = map[string]int64{"m0": 1, "m1": 1, "m2": 1, "owned": 1, "rw": driver.RWLimit, "sem": 3}

func (w *world) String() string {
	return fmt.Sprintf("level %v, exposed %v, lag %v, TTL %v, %d clients", w.level, w.exposed, w.lag, w.ttl, len(w.clients))
}

func (w *world) fail(format string, args ...any) {
	w.t.Errorf("seed %d at %v: "+format, append([]any{w.seed, time.Now().Format("05.000000")}, args...)...)
}

func (w *world) run(t *testing.T) {
	time.Sleep(time.Until(driver.Epoch.AddDate(1, 0, 0)))
	rnd := rand.New(rand.NewPCG(w.seed, 0))
	w.t, w.store = t, memlock.NewStore()
	w.level = []float64{0, 0.02, 0.1, 0.4}[w.seed%4]
	w.exposed = w.level > 0 && rnd.IntN(4) == 0
	w.ttl = []time.Duration{400 * time.Millisecond, time.Second, 30 * time.Second}[rnd.IntN(3)]
	if w.lag = []time.Duration{0, time.Millisecond, 50 * time.Millisecond, 200 * time.Millisecond}[rnd.IntN(4)]; w.level == 0 {
		w.lag = min(w.lag, time.Millisecond)
	}
	w.inside, w.last, w.writer = map[string][]inside{}, map[string]uint64{}, map[string]uint64{}
	w.told, w.losses, w.doing = map[*holdfast.LostError]int{}, map[*holdfast.LostError]bool{}, map[string]int{}
	for range 2 + rnd.IntN(3) {
		w.open(rnd)
	}
	w.closed = make([]bool, len(w.clients))

	var workers, others sync.WaitGroup
	for i, c := range w.clients {
		for range 1 + rnd.IntN(4) {
			own := rand.New(rand.NewPCG(w.seed, rnd.Uint64()))
			workers.Go(func() { w.work(i, c, own) })
		}
	}
	over := make(chan struct{})
	own := rand.New(rand.NewPCG(w.seed, rnd.Uint64()))
	others.Go(func() { w.nature(own, over) })
	others.Go(func() { w.watch(over) })
	workers.Wait()
	close(over)
	others.Wait()
	w.end()
}

func (w *world) open(rnd *rand.Rand) {
	s := newStorm(w.store, rand.New(rand.NewPCG(w.seed, rnd.Uint64())), w.level, w.lag, w.fail)
	c, err := holdfast.New(s, holdfast.WithTTL(w.ttl), holdfast.WithObserver(onLoss(func(e *holdfast.LostError) {
		w.mu.Lock()
		w.told[e]++
		w.mu.Unlock()
	})))
	if err != nil {
		w.t.Fatal(err)
	}
	w.clients, w.storms = append(w.clients, c), append(w.storms, s)
}

// nature causes events that no client asked for.
func (w *world) nature(rnd *rand.Rand, over chan struct{}) {
	restore := func() {}
	for {
		select {
		case <-over:
			return
		case <-time.After(time.Duration(rnd.Float64() * float64(2*w.ttl))):
		}
		i := rnd.IntN(len(w.clients))
		switch rnd.IntN(8) {
		case 0:
			if w.level > 0 {
				w.storms[i].silence(time.Duration(rnd.Float64() * 1.5 * float64(w.ttl)))
			}
		case 1:
			if rnd.IntN(8) == 0 && i > 0 && !w.closed[i] {
				w.closed[i] = true
				if err := w.clients[i].Close(); err != nil && w.level == 0 {
					w.fail("Close: %v", err)
				}
			}
		case 2:
			if w.exposed {
				restore = w.store.Snapshot()
			}
		case 3:
			if w.exposed && rnd.IntN(3) == 0 {
				restore()
			}
		case 4:
			if w.exposed && rnd.IntN(3) == 0 {
				w.store.LoseData()
			}
		case 5:
			if w.exposed {
				w.breakOne(rnd)
			}
		}
	}
}

func (w *world) breakOne(rnd *rand.Rand) {
	d := memlock.New(w.store)
	for name := range limits {
		if l, _ := d.Inspect(bg, name); len(l.Tickets) > 0 {
			_ = d.Break(bg, name, l.Tickets[rnd.IntN(len(l.Tickets))].ID)
			return
		}
	}
}

// watch examines all holders at instants that no client chose, and ends a world
// that stands still.
func (w *world) watch(over chan struct{}) {
	limit := time.After(time.Hour)
	for {
		select {
		case <-over:
			return
		case <-time.After(w.ttl / 50):
			w.mu.Lock()
			for name := range w.inside {
				w.sweep(name)
			}
			w.mu.Unlock()
		case <-limit:
			panic(fmt.Sprintf("seed %d: somebody waits for ever: %v; %s", w.seed, w.doing, w))
		}
	}
}

// sweep checks that the present holders of a name are compatible. w.mu is held.
func (w *world) sweep(name string) {
	var sum int64
	owners := map[string]bool{}
	for _, in := range w.inside[name] {
		if in.h.Err() != nil || owners[in.owner] {
			continue
		}
		owners[in.owner] = in.owner != ""
		sum += in.units
	}
	if sum > limits[name] && !w.exposed {
		w.fail("%d units of %s are held, %d are there", sum, name, limits[name])
	}
}

// enter notes that a hold was obtained; leave notes that it is about to be
// released.
func (w *world) enter(name, owner string, units int64, h *holdfast.Hold) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.inside[name] = append(w.inside[name], inside{h, units, owner})
	w.sweep(name)
	if w.exposed || h.Err() != nil {
		return
	}
	tok := h.Token()
	switch exclusive := units == limits[name]; {
	case tok == 0:
		w.fail("no token of %s", name)
	case owner != "" && tok == w.last[name]:
	case exclusive && tok <= w.last[name], !exclusive && name == "rw" && tok <= w.writer[name]:
		w.fail("token %d of %s after %d", tok, name, w.last[name])
	case exclusive:
		w.writer[name] = tok
	}
	w.last[name] = max(w.last[name], tok)
}

func (w *world) leave(name string, h *holdfast.Hold) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sweep(name)
	in := w.inside[name]
	for i := range in {
		if in[i].h == h {
			w.inside[name] = append(in[:i:i], in[i+1:]...)
			return
		}
	}
}

// end heals all faults and checks the state that is left.
func (w *world) end() {
	for _, s := range w.storms {
		s.calm()
	}
	if w.level == 0 && !w.detached {
		settle()
		time.Sleep(10 * w.lag)
	} else {
		time.Sleep(w.ttl + w.ttl/10 + 15*time.Second) // late requests, too
	}
	look := memlock.New(w.store)
	for name := range limits {
		if l, _ := look.Inspect(bg, name); len(l.Tickets) > 0 {
			w.fail("%s: stays behind: %+v", name, l.Tickets)
		}
	}
	for i, c := range w.clients {
		if left := holdfast.Residue(c); left != "" && !w.closed[i] {
			w.fail("client %d keeps %s", i, left)
		}
		if err := c.Close(); err != nil && !w.closed[i] {
			w.fail("Close: %v", err)
		}
	}
	synctest.Wait()
	for e := range w.losses {
		if w.told[e] != 1 {
			w.fail("%v was told %d times", e, w.told[e])
		}
	}
	for e, n := range w.told {
		if n != 1 || !w.losses[e] && limits[e.Name] > 1 { // a Multi keeps its holds to itself
			w.fail("%v was told %d times, and to its hold: %v", e, n, w.losses[e])
		}
	}
}

// accept judges the error of an attempt to lock.
func (w *world) accept(i int, what string, ctx context.Context, try bool, err error) {
	var se *holdfast.StoreError
	switch {
	case errors.Is(err, holdfast.ErrHeld) && try:
	case errors.Is(err, holdfast.ErrClosed) && w.closed[i]:
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded) && ctx.Err() != nil:
	case errors.Is(err, holdfast.ErrLost) && (w.level > 0 || errors.Is(context.Cause(ctx), holdfast.ErrLost)):
	case errors.As(err, &se) && w.level > 0:
	default:
		w.fail("%s: %v", what, err)
	}
}
