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

// TestJobsThatRunTwiceAreFound checks that two runs of a slot at the same time, a
// slot that nobody finished and a false Done are breaches.
func TestJobsThatRunTwiceAreFound(t *testing.T) {
	at := func(s int) time.Time { return base.Add(time.Duration(s) * time.Second) }
	first := func(slot int) *run {
		return &run{name: "job", slot: base.Add(time.Duration(slot) * time.Minute), host: 1, life: 1, began: at(1), ended: at(5), finished: true}
	}
	second := first(0)
	second.host, second.began = 2, at(4)
	r := &record{
		begun: base, runs: []*run{first(0), second},
		heard: map[slotKey]bool{{"job", base.Add(time.Minute).UnixNano()}: true},
		late:  []answer{{"job", base, holdfast.Done{Slot: base, Token: 1, At: at(5), By: holdfast.Holder{Note: "host 3"}}}},
	}
	_, err := r.judge(&World{Names: []string{"job"}, Slots: 2, Every: time.Minute})
	for _, want := range []string{"at the same time", "never finished", "told that it was done by"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the judge says %v, want %q", err, want)
		}
	}
}
