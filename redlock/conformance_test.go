package redlock

import (
	"flag"
	"strconv"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivertest"
	"github.com/holdfast-go/holdfast/drivertest/locktest"
)

func (w *world) harness() drivertest.Harness {
	return drivertest.Harness{
		Open: func(t drivertest.T) driver.Driver { return w.open(t) },
		TTL:  30 * time.Second,
		Pause: func(drivertest.T) func() {
			for _, s := range w.nodes {
				s.shut()
			}
			return func() {
				for _, s := range w.nodes {
					s.reopen()
				}
			}
		},
		LoseData: func(drivertest.T) {
			for _, s := range w.nodes {
				s.LoseData()
			}
		},
		Snapshot: func(drivertest.T) func() {
			var restore []func()
			for _, s := range w.nodes {
				restore = append(restore, s.Snapshot())
			}
			return func() {
				for _, r := range restore {
					r()
				}
			}
		},
		StepClock: func(_ drivertest.T, d time.Duration) {
			for _, s := range w.nodes {
				s.StepClock(d)
			}
		},
	}
}

// everyCount makes runs of the suite on other numbers of nodes complete.
var everyCount = flag.Bool("redlock.all", false, "run the suite on seven nodes, and on three of five, too")

// The whole suite, but for what Traits exclude, on nodes in memory. Three of them
// are the majority's simplest case; five the first in which two may differ from
// the rest. Seven add nothing but time.
func TestConformance(t *testing.T) {
	counts := []int{3, 5}
	if *everyCount {
		counts = append(counts, 7)
	}
	for _, n := range counts {
		t.Run(strconv.Itoa(n), func(t *testing.T) {
			drivertest.RunBubbles(t, func(drivertest.T) drivertest.Harness { return newWorld(n).harness() })
		})
	}
}

// And with one node of three, or two of five, that are down. Either leaves a
// majority that has to agree.
func TestConformanceOfTheRest(t *testing.T) {
	rest := map[int]int{3: 1}
	if *everyCount {
		rest[5] = 2
	}
	for n, away := range rest {
		t.Run(strconv.Itoa(away)+" of "+strconv.Itoa(n), func(t *testing.T) {
			drivertest.RunBubbles(t, func(drivertest.T) drivertest.Harness {
				w := newWorld(n)
				for _, s := range w.nodes[:away] {
					s.dead.Store(true)
				}
				h := w.harness()
				const order = "without a node to spare, who has to write a token back may have to stand in line again"
				h.LeaveOut = map[string]string{
					"identity":                "nodes that never answered have none",
					"replaces":                order,
					"leave-frees-no-stranger": order,
				}
				return h
			})
		})
	}
}

// In real time, with leases that a busy machine can renew: a node's deadline is a
// tenth of them.
func TestLocks(t *testing.T) {
	t.Parallel()
	w := newWorld(3)
	h := w.harness()
	h.TTL = 4 * time.Second
	locktest.Run(t, h)
}
