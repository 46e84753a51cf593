package trace_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/safety/sim"
	"github.com/holdfast-go/holdfast/internal/safety/trace"
	"github.com/holdfast-go/holdfast/internal/safety/trace/tracetest"
	"github.com/holdfast-go/holdfast/internal/testkit/broken"
	"github.com/holdfast-go/holdfast/memlock"
)

var (
	from      = flag.String("trace.sources", "memory", "of which stores: memory, naive, flaw=NAME or planted=NAME, separated by commas, each with @SEED if its first seed is another one; flaws and planted are all of those")
	schedules = flag.Uint64("trace.schedules", 20, "how many schedules are recorded of each")
	first     = flag.Uint64("trace.seed", 1, "the seed of the first")
)

// source is a store whose traces can be recorded, made in the bubble.
type source func(cleanup func(func())) store

// store is a fresh store with what may happen to it.
type store struct {
	open      func() driver.Driver
	stepClock func(time.Duration)
	restart   func() // the subscriptions end and are taken up again
}

func memory(func(func())) store {
	s := memlock.NewStore()
	return store{open: func() driver.Driver { return memlock.New(s) }, stepClock: s.StepClock}
}

func flawed(name string) source {
	return func(func(func())) store {
		s := broken.NewStore(name)
		return store{open: func() driver.Driver { return broken.New(s) }, stepClock: s.StepClock, restart: s.Restart}
	}
}

func plantedIn(b broken.Bug) source {
	return func(cleanup func(func())) store {
		open := b.Open(cleanup)
		return store{open: func() driver.Driver {
			d, err := open(context.Background(), "")
			if err != nil {
				panic(err) // these stores have no errors
			}
			return d
		}}
	}
}

// Flaws are the flaws of package broken that schedules meet. The others are about
// what schedules do not contain, or need a request that blocks.
var Flaws = []string{
	"two-holders", "leave-is-release", "heads-counted", "early", "long-lease", "renews-not", "strangers-leave", "leave-counts-down",
	"last-come", "idle-restarts", "unsure-leaks", "abandons", "readers-overtake", "try-overtakes", "replaces-token", "join-renews-not",
	"first-leaver-frees", "left-forgotten", "immortal",
	"owner-ignored", "owner-queues", "owner-leaves", "owner-dies", "upgrades",
}

// plantedBugs are those of package broken that lie in a driver, do not block, and
// change what goes to the store or comes from it.
var plantedBugs = []string{"no own-key check after waiting", "expiry from a client's clock", "re-created on renewal", "token as a double"}

// sourcesOf returns the stores of a name.
func sourcesOf(name string) (map[string]source, error) {
	all := map[string]source{}
	switch kind, which, _ := strings.Cut(name, "="); kind {
	case "memory":
		all[name] = memory
	case "naive":
		all[name] = flawed(broken.None)
	case "flaw":
		all[name] = flawed(which)
	case "flaws":
		for _, f := range Flaws {
			all["flaw="+f] = flawed(f)
		}
	case "planted":
		for _, b := range broken.Bugs() {
			if slices.Contains(plantedBugs, b.Name) && (which == "" || which == b.Name) {
				all["planted="+b.Name] = plantedIn(b)
			}
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("there is no store %q", name)
	}
	return all, nil
}

// ownersOf returns the owners of the clients of a seed. In a quarter of the schedules
// two clients are of one owner.
func ownersOf(seed uint64) []string {
	if seed%4 == 1 {
		return []string{"job", "job"}
	}
	return nil
}

// play plays a schedule, with a recorder before each driver and sometimes an
// operator. Without record there is no recorder.
func play(t *testing.T, plan sim.Schedule, from source, record bool) (events []trace.Event, played *sim.Played) {
	synctest.Test(t, func(t *testing.T) {
		var r *trace.Recorder
		fresh := func() sim.Store {
			st := from(t.Cleanup)
			if !record {
				return sim.Store{Open: st.open, StepClock: st.stepClock}
			}
			r = trace.NewRecorder(plan.Seed)
			s := sim.Store{Open: func() driver.Driver { return r.Wrap(st.open()) }}
			if st.stepClock != nil {
				s.StepClock = func(d time.Duration) { r.StepClock(d, st.stepClock) }
			}
			return s
		}
		var err error
		if played, err = sim.Play(plan, fresh); err != nil {
			t.Fatal(err)
		}
		if record {
			events = r.Events()
		}
	})
	return events, played
}

// operate plays a schedule in which an operator breaks tickets and restarts the
// store.
func operate(t *testing.T, seed uint64, from source) (events []trace.Event) {
	synctest.Test(t, func(t *testing.T) {
		var operates sync.WaitGroup
		plan := sim.Plan(seed, false)
		var r *trace.Recorder
		fresh := func() sim.Store {
			st := from(t.Cleanup)
			r = trace.NewRecorder(seed)
			open := func() driver.Driver { return r.Wrap(st.open()) }
			d := open()
			operates.Go(func() { operator(rand.New(rand.NewPCG(seed, 2)), plan.TTL, d, st.restart) })
			return sim.Store{Open: open}
		}
		if _, err := sim.Play(plan, fresh); err != nil {
			t.Fatal(err)
		}
		operates.Wait()
		events = r.Events()
	})
	return events
}

// operator looks into queues for a while, and breaks what it finds there.
func operator(rnd *rand.Rand, ttl time.Duration, d driver.Driver, restart func()) {
	defer d.Close()
	ctx := context.Background()
	for range 12 {
		time.Sleep(time.Duration(rnd.Int64N(int64(ttl) / 3)))
		q, err := d.Inspect(ctx, []string{"mutex", "rw", "semaphore"}[rnd.IntN(3)])
		switch {
		case err != nil || len(q.Tickets) == 0:
		case rnd.IntN(4) == 0 && restart != nil:
			restart()
		case rnd.IntN(2) == 0:
			id := q.Tickets[rnd.IntN(len(q.Tickets))].ID
			_ = d.Break(ctx, q.Name, id)
			_ = d.Break(ctx, q.Name, id) // finds nothing
		}
	}
}

// TestRecord writes the traces that internal/proof holds against the specification.
// Without a folder it checks that they can be written.
func TestRecord(t *testing.T) {
	for name := range strings.SplitSeq(*from, ",") {
		name, own, _ := strings.Cut(name, "@")
		first, err := *first, error(nil)
		if own != "" {
			first, err = strconv.ParseUint(own, 10, 64)
		}
		if err != nil {
			t.Fatal(err)
		}
		sources, err := sourcesOf(name)
		if err != nil {
			t.Fatal(err)
		}
		for name, from := range sources {
			var all []trace.Event
			for seed := first; seed < first+*schedules; seed++ {
				if seed%8 == 0 {
					all = append(all, operate(t, seed, from)...)
					continue
				}
				plan := sim.Plan(seed, false)
				plan.Owners = ownersOf(seed)
				events, _ := play(t, plan, from, true)
				all = append(all, events...)
			}
			tracetest.Write(t, name, all)
		}
	}
}
