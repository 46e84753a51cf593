package once

import (
	"context"
	"flag"
	"math"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memlock"
	"go.uber.org/goleak"
)

var (
	slots = flag.Int("once.slots", 150, "how many slots TestEachSlotIsFinishedOnce runs")
	seed  = flag.Uint64("once.seed", 1, "the seed of its first world")
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// jobs of 1 ms to 10 min: mostly short ones, so that a queue of slots drains.
func jobs(rnd *rand.Rand) time.Duration {
	from, to := float64(time.Millisecond), float64(10*time.Second)
	if rnd.IntN(10) == 0 {
		from, to = to, float64(10*time.Minute)
	}
	return time.Duration(from * math.Pow(to/from, rnd.Float64()))
}

// worldInMemory returns a world of 50 hosts, for a bubble.
func worldInMemory(seed uint64, slots int) World {
	s := memlock.NewStore()
	s.StepClock(30 * 365 * 24 * time.Hour) // bubbles begin in 2000, tokens in 2025
	return World{
		Seed: seed, Names: []string{"job"}, Hosts: 50, Slots: slots,
		Open:  func() (driver.Driver, error) { return memlock.New(s), nil },
		Every: time.Duration(1+seed%3) * time.Minute, Skew: 10 * time.Minute, TTL: 30 * time.Second,
		Job: jobs, Faults: 3 * time.Minute, Down: 2 * time.Minute, Latency: 20 * time.Millisecond, Aimed: 3,
	}
}

// TestEachSlotIsFinishedOnce checks, in worlds of 1,000 slots at most, that each
// slot is finished once, or again only where a fault fell between the return of
// the function and the answer to its record, that each unfinished start has a
// fault of its own, and that late hosts hear by whom and when a slot was done.
func TestEachSlotIsFinishedOnce(t *testing.T) {
	var mu sync.Mutex
	var all Report
	turns := make(chan struct{}, runtime.GOMAXPROCS(0))
	t.Run("worlds", func(t *testing.T) {
		for i, left := 0, *slots; left > 0; i, left = i+1, left-1000 {
			t.Run("", func(t *testing.T) {
				t.Parallel()
				turns <- struct{}{}
				defer func() { <-turns }()
				synctest.Test(t, func(t *testing.T) {
					rep, err := worldInMemory(*seed+uint64(i), min(left, 1000)).Run()
					t.Log(rep)
					if err != nil {
						t.Error(err)
					}
					if rep.Idle > 0 || rep.Abandoned > 0 {
						t.Errorf("%d starts ended without a fault, %d slots were abandoned", rep.Idle, rep.Abandoned)
					}
					mu.Lock()
					defer mu.Unlock()
					all.Add(rep)
				})
			})
		}
	})
	t.Log("all: ", all)
	if all.Kills == 0 || all.Pauses == 0 || all.Told*2 < all.Late {
		t.Error("the worlds show too little")
	}
	if *slots >= 1000 && (all.Unfinished == 0 || all.Holes == 0) {
		t.Error("no fault hit a function, or none its record")
	}
}

// forgetful is a driver that keeps only some of the marks that it has answered.
type forgetful struct {
	*memlock.Driver
	n *atomic.Int64
}

func (d forgetful) SetMark(ctx context.Context, name string, m driver.Mark) error {
	if d.n.Add(1)%10 == 0 {
		return nil
	}
	return d.Driver.SetMark(ctx, name, m)
}

// TestForgottenMarksAreFound checks that a store which forgets marks fails.
func TestForgottenMarksAreFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := worldInMemory(1, 50)
		open, n := w.Open, new(atomic.Int64)
		w.Open = func() (driver.Driver, error) {
			d, err := open()
			if err != nil {
				return nil, err
			}
			return forgetful{d.(*memlock.Driver), n}, nil
		}
		_, err := w.Run()
		if err == nil || !strings.Contains(err.Error(), "which was recorded, and again") {
			t.Errorf("the judge says: %v", err)
		}
	})
}

// TestHostsWaitForTheStoreAtTheirStart checks that a store which is unavailable when
// a host starts delays the host, and that one which refuses it is a breach.
func TestHostsWaitForTheStoreAtTheirStart(t *testing.T) {
	for class, want := range map[driver.Class]string{driver.Unavailable: "", driver.Unknown: "", driver.Refused: "no, not now"} {
		synctest.Test(t, func(t *testing.T) {
			w := worldInMemory(1, 50)
			open := w.Open
			var n atomic.Int64
			w.Open = func() (driver.Driver, error) {
				if n.Add(1)%5 == 0 {
					return nil, &holdfast.StoreError{Op: "open", Err: driver.Errorf(class, "no, not now")}
				}
				return open()
			}
			rep, err := w.Run()
			if (err != nil) != (want != "") || err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("%v: the judge says: %v", class, err)
			}
			if kind := "open: " + class.String(); want == "" && rep.Errors[kind] == 0 {
				t.Errorf("%v: no error of the kind %q among %v", class, kind, rep.Errors)
			}
		})
	}
}

// TestSlotsThatNobodyFinishesAreFound checks that a slot which no host finishes is a
// breach where a host that asked for it lives, and is none where each was killed.
func TestSlotsThatNobodyFinishesAreFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := worldInMemory(1, 20)
		open := w.Open
		w.Faults, w.Aimed, w.impatient = 0, 0, true
		from := time.Now().Add(w.Skew + 5*time.Minute)
		w.Open = func() (driver.Driver, error) {
			d, err := open()
			if err != nil {
				return nil, err
			}
			return refusing{d.(*memlock.Driver), from}, nil
		}
		rep, err := w.Run()
		if err == nil || !strings.Contains(err.Error(), "never finished, in 0 starts, although 50 of 50 that asked were not killed") {
			t.Errorf("the judge says: %v, %v", rep, err)
		}
	})
	k := slotKey{"job", base.UnixNano()}
	r := &record{begun: base, asks: map[slotKey][]*ask{k: {{slotKey: k, host: 1, life: 1}}}, dead: map[[2]int]bool{{1, 1}: true}}
	if rep, err := r.judge(&World{Names: []string{"job"}, Slots: 1, Every: time.Minute}); err != nil || rep.Abandoned != 1 {
		t.Errorf("all killed: %v, %v", rep, err)
	}
}

// refusing is a driver whose store refuses to read marks for an hour.
type refusing struct {
	*memlock.Driver
	from time.Time
}

func (d refusing) Mark(ctx context.Context, name string) (driver.Mark, error) {
	if since := time.Since(d.from); since >= 0 && since < time.Hour {
		return driver.Mark{}, driver.Errorf(driver.Refused, "no rights")
	}
	return d.Driver.Mark(ctx, name)
}

// TestHostsAskUntilTheirSlotsAreDone checks on a slow store, where most hosts are
// killed after they have asked for the last slot, that each slot is finished.
func TestHostsAskUntilTheirSlotsAreDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := worldInMemory(1, 50)
		w.Names, w.Hosts, w.Speed, w.Latency, w.TTL = []string{"a", "b"}, 20, 20, 2*time.Second, 10*time.Second
		w.Faults, w.Down = 4*time.Second, 15*time.Second
		w.Job = func(rnd *rand.Rand) time.Duration { return time.Duration(rnd.Int64N(int64(3 * time.Second))) }
		rep, err := w.Run()
		if err != nil || rep.Abandoned > 0 || rep.Kills < w.Hosts {
			t.Errorf("%v, %v", rep, err)
		}
	})
}

// TestJobsThatRunTwiceAreFound checks that two runs of a slot at the same time, a
// slot that nobody finished and a false Done are breaches.
func TestJobsThatRunTwiceAreFound(t *testing.T) {
	at := func(s int) time.Time { return base.Add(time.Duration(s) * time.Second) }
	first := func(slot int) *run {
		return &run{name: "job", slot: base.Add(time.Duration(slot) * time.Minute), host: 1, life: 1, began: at(1), ended: at(5), finished: true}
	}
	second := first(0)
	second.host, second.began = 2, at(4)
	open := slotKey{"job", base.Add(time.Minute).UnixNano()}
	r := &record{
		begun: base, runs: []*run{first(0), second},
		asks: map[slotKey][]*ask{open: {{slotKey: open, host: 1, life: 1}, {slotKey: open, host: 2, life: 1}}},
		dead: map[[2]int]bool{{1, 1}: true},
		late: []answer{
			{"job", base, holdfast.Done{Slot: base, Token: 1, At: at(5), By: holdfast.Holder{Note: "host 3"}}, at(9)},
			{"job", base, holdfast.Done{Slot: base}, at(9)},
		},
	}
	_, err := r.judge(&World{Names: []string{"job"}, Slots: 2, Every: time.Minute})
	for _, want := range []string{"at the same time", "never finished, in 0 starts, although 1 of 2", "told that it was done by", "not told by whom it was done, though only 0 slots"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the judge says %v, want %q", err, want)
		}
	}
}

// TestUnfinishedStartsNeedFaults checks that each unfinished start needs a fault of its
// own, and that a store which was too slow for a lease is told apart.
func TestUnfinishedStartsNeedFaults(t *testing.T) {
	at := func(s int) time.Time { return base.Add(time.Duration(s) * time.Second) }
	start := func(from, to int, finished bool) *run {
		return &run{name: "job", slot: base, host: 1, life: 1, began: at(from), ended: at(to), finished: finished, answered: finished}
	}
	pause := &fault{host: 1, life: 1, from: at(2), to: at(8)}
	for _, c := range []struct {
		runs   []*run
		faults []*fault
		slow   []slowness
		breach bool
		idle   int
	}{
		{runs: []*run{start(1, 3, false), start(12, 13, true)}, faults: []*fault{pause}},
		{runs: []*run{start(1, 3, false), start(4, 6, false), start(12, 13, true)}, faults: []*fault{pause}, breach: true},
		{runs: []*run{start(1, 3, false), start(9, 10, false), start(12, 13, true)}, faults: []*fault{pause, pause}, breach: true},
		{runs: []*run{start(1, 3, false), start(4, 6, false), start(12, 13, true)}, faults: []*fault{pause, pause}},
		{runs: []*run{start(1, 3, false), start(12, 13, true)}, breach: true},
		{runs: []*run{start(1, 3, false), start(12, 13, true)}, slow: []slowness{{1, at(2), at(4)}}, idle: 1},
		{runs: []*run{start(1, 3, false), start(12, 13, true)}, slow: []slowness{{-1, at(2), at(4)}}, idle: 1},
		{runs: []*run{start(1, 3, false), start(12, 13, true)}, slow: []slowness{{2, at(2), at(4)}, {1, at(4), at(5)}}, breach: true},
	} {
		r := &record{begun: base, runs: c.runs, faults: c.faults, slow: c.slow}
		rep, err := r.judge(&World{Names: []string{"job"}, Slots: 1, Every: time.Minute})
		if (err != nil) != c.breach || err != nil && !strings.Contains(err.Error(), "no fault is left for that") || rep.Idle != c.idle {
			t.Errorf("%v, %v, want breach %v and %d by slowness", rep, err, c.breach, c.idle)
		}
	}
}
