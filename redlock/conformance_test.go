package redlock

import (
	"flag"
	"strconv"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivertest"
)

func (w *world) harness() drivertest.Harness {
	return drivertest.Harness{
		LateViews: true,
		Open:      func(t drivertest.T) driver.Driver { return w.open(t) },
		TTL:       30 * time.Second,
		Pause: func(drivertest.T) func() {
			for _, s := range w.nodes {
				s.Shut()
			}
			return func() {
				for _, s := range w.nodes {
					s.Open()
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

// everyCount is a flag that makes runs of the suite on other numbers of nodes
// complete.
var everyCount = flag.Bool("redlock.all", false, "run the suite on seven nodes, and on three of five, too")

// agedAlike is the reason for running the case aged on one number of nodes
// only.
const agedAlike = "what a client keeps does not depend on the number of its nodes; three are asked"

// TestDriverConformance runs the whole suite, apart from cases that Traits
// exclude, on nodes in memory. Three nodes are the majority's simplest case;
// five are the first in which two may differ from the rest. Seven, which run
// with -redlock.all, add nothing but time.
func TestDriverConformance(t *testing.T) {
	counts := []int{3, 5}
	if *everyCount {
		counts = append(counts, 7)
	}
	for _, n := range counts {
		t.Run(strconv.Itoa(n), func(t *testing.T) {
			drivertest.RunBubbles(t, func(drivertest.T) drivertest.Harness {
				h := newWorld(n).harness()
				if n > 3 {
					h.LeaveOut = map[string]string{"aged": agedAlike}
				}
				return h
			})
		})
	}
}

// TestConformanceOfBareMajority runs the suite with one node of three down and,
// with -redlock.all, two of five. Either leaves a majority all of whose nodes
// have to agree.
func TestConformanceOfBareMajority(t *testing.T) {
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
					"aged":                    agedAlike,
					"replaces":                order,
					"leave-frees-no-stranger": order,
				}
				return h
			})
		})
	}
}

// TestLocks runs the suite of the lock in real time. A busy machine can renew
// its leases in time: a node's deadline is a tenth of a lease.
func TestLocks(t *testing.T) {
	t.Parallel()
	w := newWorld(3)
	h := w.harness()
	h.TTL = 4 * time.Second
	drivertest.RunLocks(t, h)
}
