// Package drivertest is the conformance suite of the seam: it checks, on any
// driver and any store, the duties that package driver numbers.
//
// The suite is data. A [Case] has a name, the rules it checks ("Join 3", and
// the numbers of known faults, "F4"), what it needs of a driver, and the
// function that acts and checks. A driver's own test describes its store with
// a [Harness] and calls [Run]; for a store that lives by the process's clock,
// [RunBubbles] runs every case in a testing/synctest bubble, where hours pass
// in milliseconds.
//
//	func TestConformance(t *testing.T) {
//		drivertest.Run(t, drivertest.Harness{
//			Open: func(t drivertest.T) driver.Driver { return open(t, server) },
//			TTL:  2 * time.Second,
//		})
//	}
//
// The cases judge by order, tokens, counts and by times that stay right on a
// slow machine: too early is measured from before a request to after its
// answer, too late from an answer to before the next request.
//
// Package drivertest/broken has drivers with one flaw each, every one of which
// fails the case named for it; package drivertest/faults loses, delays and
// doubles requests and answers on the way to any driver.
package drivertest

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// T is what a case reports to: a *testing.T, or what [Record] makes.
type T interface {
	Helper()
	Logf(format string, args ...any)
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Failed() bool
	Cleanup(func())
	Name() string
}

// A Harness describes a store to the suite. Only Open is needed.
type Harness struct {
	// Open returns a new client; all that it ever returned speak to the same
	// store. The suite closes them.
	Open func(t T) driver.Driver

	// TTL is that of the tickets in most cases, which wait for its end a few
	// times: short, but long enough for the store and its expiry. The zero
	// value means a second, or the driver's MinTTL if that is more.
	TTL time.Duration

	// Slack is by how much the store may be late beyond the promised 5 % and
	// its Granularity before that is a failure. The zero value means a
	// second, and five milliseconds in a bubble.
	Slack time.Duration

	// Many is how many tickets wait in one line in the case that counts what
	// they cost. The zero value means 1,000.
	Many int

	// Clients and Rounds size the cases that hammer a line: how many clients,
	// with four goroutines each, and how often each goroutine takes its turn.
	// The zero values mean 4 and 10.
	Clients, Rounds int

	// Pause makes the store silent: it accepts requests, or seems to, and
	// does not answer until resume is called. Nil when it cannot.
	Pause func(t T) (resume func())

	// Restart stops the store and starts it again, in the way that
	// Traits.SurvivesRestart speaks of. Nil when it cannot.
	Restart func(t T)

	// LoseData empties the store. Nil when it cannot.
	LoseData func(t T)

	// Snapshot remembers what the store holds; restore brings it back to
	// that. Nil when it cannot.
	Snapshot func(t T) (restore func())

	// StepClock sets the store's own clock by d. Nil when it cannot.
	StepClock func(t T, d time.Duration)

	// Connections counts the store's connections. Nil when it cannot.
	Connections func(t T) int

	// LeaveOut names cases that are not run on this store, with the reason.
	// It is printed. An unknown name is an error.
	LeaveOut map[string]string

	bubble bool
}

// A Case is one case of the suite.
type Case struct {
	Name  string // of the subtest
	Rules string // "Join 1, F4": what it checks, by method and number of package driver, and which faults
	Needs Needs
	Alone bool // not at the same time as others: it counts or disturbs
	run   func(*world)
}

// Needs are the traits of a driver and the means of a Harness without which a
// case says nothing.
type Needs uint16

// The needs.
const (
	Shared Needs = 1 << iota
	Owner
	Fair
	Push
	Fencing
	Pause
	Restart
	LoseData
	Snapshot
	StepClock
)

var needNames = []string{"Shared", "Owner", "Fair", "Push", "Fencing", "Pause", "Restart", "LoseData", "Snapshot", "StepClock"}

// String lists the needs.
func (n Needs) String() string {
	var s []string
	for i, name := range needNames {
		if n&(1<<i) != 0 {
			s = append(s, name)
		}
	}
	return strings.Join(s, ", ")
}

// has returns what the driver and the harness offer.
func (h *Harness) has(tr driver.Traits) Needs {
	var n Needs
	for i, ok := range []bool{
		tr.Shared, tr.Owner, tr.Fair, tr.Push, tr.Fencing,
		h.Pause != nil, h.Restart != nil, h.LoseData != nil, h.Snapshot != nil, h.StepClock != nil,
	} {
		if ok {
			n |= 1 << i
		}
	}
	return n
}

// Cases returns the suite.
func Cases() []Case {
	var all []Case
	for _, cases := range [][]Case{
		joinCases, orderCases, tokenCases, limitCases, ownerCases, replaceCases, timeCases,
		renewCases, leaveCases, pushCases, breakCases, viewCases, nameCases, lifeCases, storeCases, programCases, hammerCases,
	} {
		all = append(all, cases...)
	}
	return all
}

// Run runs the suite on a store, a subtest for each case. Cases that the
// driver or the harness has no means for are left out, and named in the log.
// Some cases count goroutines and connections: Run must not be called by two
// parallel tests of one process.
func Run(t *testing.T, h Harness) {
	d := h.Open(t)
	traits := d.Traits()
	if err := d.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	for _, c := range chosen(t, &h, traits) {
		t.Run(c.Name, func(t *testing.T) {
			if !c.Alone {
				t.Parallel()
			}
			RunCase(t, h, c)
		})
	}
}

// RunBubbles is Run for a store that lives by the process's clock: each case
// runs in a testing/synctest bubble of its own, on the store that fresh makes
// there.
func RunBubbles(t *testing.T, fresh func(t T) Harness) {
	var cases []Case
	synctest.Test(t, func(t *testing.T) {
		h := fresh(t)
		d := h.Open(t)
		cases = chosen(t, &h, d.Traits())
		if err := d.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := fresh(t)
				h.bubble = true
				RunCase(t, h, c)
			})
		})
	}
}

// chosen returns the cases that can be run, and logs the others.
func chosen(t T, h *Harness, traits driver.Traits) []Case {
	t.Helper()
	var run []Case
	known := make(map[string]bool)
	for _, c := range Cases() {
		known[c.Name] = true
		if missing := c.Needs &^ h.has(traits); missing != 0 {
			t.Logf("left out: %s needs %v", c.Name, missing)
		} else if reason, out := h.LeaveOut[c.Name]; out {
			t.Logf("left out: %s: %s", c.Name, reason)
		} else {
			run = append(run, c)
		}
	}
	for name := range h.LeaveOut {
		if !known[name] {
			t.Errorf("LeaveOut: there is no case %q", name)
		}
	}
	return run
}

// RunCase runs one case. In a bubble, it has to be called there, with a
// Harness made by [InBubble].
func RunCase(t T, h Harness, c Case) {
	w := newWorld(t, h)
	defer w.end()
	c.run(w)
}

// InBubble returns the harness of a store that was made in the testing/synctest
// bubble in which its cases will run.
func InBubble(h Harness) Harness {
	h.bubble = true
	return h
}
