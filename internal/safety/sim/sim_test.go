package sim_test

import (
	"flag"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/safety/sim"
	"github.com/holdfast-go/holdfast/memlock"
	"go.uber.org/goleak"
)

var (
	schedules = flag.Uint64("sim.schedules", 300, "how many schedules TestSchedules plays; TestExposed plays a quarter as many")
	seed      = flag.Uint64("sim.seed", 1, "the seed of the first")
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// memory returns a fresh store in memory.
func memory(*testing.T) sim.Store {
	s := memlock.NewStore()
	return sim.Store{
		Open:      func() driver.Driver { return memlock.New(s) },
		StepClock: s.StepClock, Wipe: s.LoseData, Snapshot: s.Snapshot,
	}
}

// play plays a schedule in a bubble of its own.
func play(t *testing.T, s sim.Schedule, store func(*testing.T) sim.Store) *sim.Played {
	var p *sim.Played
	synctest.Test(t, func(t *testing.T) {
		var err error
		if p, err = sim.Play(s, func() sim.Store { return store(t) }); err != nil {
			t.Fatal(err)
		}
	})
	return p
}

// report returns the text of a failure.
func report(p *sim.Played, violations []string, again string) string {
	return fmt.Sprintf("%s%vwhat happened to requests and pushes:\n    %s\nagain: go test ./internal/safety/sim -run %s -sim.seed %d -sim.schedules 1",
		strings.Join(violations, ""), p.Schedule, strings.Join(p.Met, "\n    "), again, p.Schedule.Seed)
}

// enough is a number of schedules with which each event happens in some.
const enough = 300

// count adds up the events of the schedules played.
type count struct {
	schedules, calls, requests, met, grants, lost, overlaps, ordered, slices, writes, stale, stopped atomic.Int64
}

// each plays schedules of Plan, and judges them.
func each(t *testing.T, many uint64, exposed bool, again string) *count {
	return eachOf(t, many, func(seed uint64) sim.Schedule { return sim.Plan(seed, exposed) }, again)
}

// eachOf plays schedules on two processors, and judges them.
func eachOf(t *testing.T, many uint64, plan func(seed uint64) sim.Schedule, again string) *count {
	var n count
	var wg sync.WaitGroup
	next := atomic.Uint64{}
	next.Store(*seed)
	began := time.Now()
	for range 2 {
		wg.Go(func() {
			for !t.Failed() {
				i := next.Add(1) - 1
				if i >= *seed+many {
					return
				}
				p := play(t, plan(i), memory)
				violations, s := p.Judge()
				if len(violations) > 0 {
					t.Error(report(p, violations, again))
				}
				n.schedules.Add(1)
				n.calls.Add(int64(p.Calls))
				n.requests.Add(int64(p.Requests))
				n.met.Add(int64(len(p.Met)))
				n.grants.Add(s.Grants)
				n.lost.Add(s.Lost)
				n.overlaps.Add(s.Overlaps)
				n.ordered.Add(s.Ordered)
				n.slices.Add(s.Slices)
				n.writes.Add(s.Writes)
				n.stale.Add(s.Stale)
				n.stopped.Add(int64(p.Stopped))
			}
		})
	}
	wg.Wait()
	t.Logf("%d schedules from seed %d in %v: %d calls, %d grants, %d requests and pushes of which %d met a fault; "+
		"%d holds lost, %d overlaps, %d guarded writes, %d stale accesses stopped, %d waits judged for order, %d slices, %d functions asked to stop",
		n.schedules.Load(), *seed, time.Since(began).Round(time.Millisecond), n.calls.Load(), n.grants.Load(), n.requests.Load(), n.met.Load(),
		n.lost.Load(), n.overlaps.Load(), n.writes.Load(), n.stale.Load(), n.ordered.Load(), n.slices.Load(), n.stopped.Load())
	return &n
}

// TestSchedules checks that no schedule of faults which a lock promises to
// survive breaks a promise.
func TestSchedules(t *testing.T) {
	n := each(t, *schedules, false, "TestSchedules")
	if *schedules < enough {
		return
	}
	if n.grants.Load() < n.schedules.Load() || n.met.Load() == 0 || n.lost.Load() == 0 || n.ordered.Load() == 0 || n.writes.Load() == 0 || n.stale.Load() == 0 {
		t.Error("it says nothing: too little happened")
	}
}

// TestExposed checks that two clients may hold at once, and do, if the store
// loses its data or its time. Tokens and the guard hold nevertheless.
func TestExposed(t *testing.T) {
	n := each(t, (*schedules+3)/4, true, "TestExposed")
	if *schedules >= enough && n.overlaps.Load() == 0 {
		t.Error("nothing overlapped: the schedules do not expose anything")
	}
}
