// Package drivertest is the conformance suite of the seam: it checks, on any
// driver and any store, the duties that package driver numbers.
//
// The suite is data. A [Case] has a name, the rules it checks ("Join 3", and
// the numbers of known faults, "F4"), its needs of a driver and a harness, and
// the function that acts and checks. A driver's own test describes its store with
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
// The cases judge by order, tokens, counts, and times that stay valid on a slow
// machine: earliness is measured from before a request to after its answer,
// lateness from an answer to before the next request.
//
// [Run] checks what a driver answers. [RunLocks] checks the lock as its users see
// it, the core on a driver, and uses the same Harness.
//
// Package internal/testkit/broken has drivers with one flaw each, each of which fails
// the case named for it. Package internal/testkit/faults loses, delays and doubles
// requests and answers on the way to any driver.
package drivertest

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// T is the target of a case's reports: a *testing.T, or the value that [Record]
// makes.
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
	// Open returns a new client. All its clients use the same store. The suite
	// closes them.
	Open func(t T) driver.Driver

	// TTL is the TTL of the tickets in most cases. The cases wait for its end a
	// few times, so it should be short, but long enough for the store and its
	// expiry. Zero means a second, or the driver's MinTTL if that is longer.
	TTL time.Duration

	// Slack is the lateness that is allowed to the store beyond the promised
	// 5 % and its Granularity. Zero means a second, and five milliseconds in a
	// bubble.
	Slack time.Duration

	// LateViews says that Inspect and Names may show a ticket for a moment after
	// its Leave was answered, as where a store is several servers of which a
	// majority answered, and that a ticket that joins in that moment may wait. The
	// cases then wait until the ticket is gone. A store of one server shows what it
	// answered.
	LateViews bool

	// LateBreaks says that Renew may call a ticket Held for a moment after a
	// Break of it was answered, as where notifications of the store tell the
	// driver that a hold is gone. The cases then renew until the ticket is Gone.
	LateBreaks bool

	// TellsLeft says that the store tells a ticket that must not wait how long
	// it keeps the holder (Join 10).
	TellsLeft bool

	// Waiters is the number of tickets that wait in one queue in the case that
	// counts their cost. Zero means 1,000.
	Waiters int

	// Clients and Rounds size the cases with many concurrent clients: the number
	// of clients, with four goroutines each, and the number of turns of each
	// goroutine. Zero means 4 clients and 10 rounds.
	Clients, Rounds int

	// Pause makes the store silent: it accepts requests, or seems to, and does
	// not answer until resume is called. Nil if the test cannot do that.
	Pause func(t T) (resume func())

	// Restart stops the store and starts it again, in the way that
	// Traits.SurvivesRestart describes. Nil if the test cannot do that.
	Restart func(t T)

	// LoseData empties the store. Nil if the test cannot do that.
	LoseData func(t T)

	// Snapshot copies the store's data, and restore brings the copy back. Nil
	// if the test cannot do that.
	Snapshot func(t T) (restore func())

	// StepClock moves the store's own clock by d. Nil if the test cannot do that.
	StepClock func(t T, d time.Duration)

	// FailPushes makes the store fail to write the push of a grant, for clients
	// opened meanwhile, until restore is called. Nil where a push cannot fail by
	// itself.
	FailPushes func(t T) (restore func())

	// OpenAt opens a client as a user's program without options does, at an
	// address (host and port) where there is no such store. Nil for stores
	// without a network connection.
	OpenAt func(ctx context.Context, address string) (driver.Driver, error)

	// Connections counts the store's connections. Nil if the test cannot do that.
	Connections func(t T) int

	// Rights describes the rights that the store gives to its users. Nil for a
	// store without users.
	Rights *Rights

	// Foreign lists the values that other programs may keep where the store keeps
	// a queue, beside the tickets in it. Nil if there are none, and for a store
	// with one record for a whole queue, whose own tests check Join 11.
	Foreign []Foreign

	// Elsewhere lists the ways in which a client may see the store that differ
	// from those of Open's clients. Nil for a store that looks the same from
	// everywhere.
	Elsewhere []Elsewhere

	// LockRow locks the store's record of a queue, as another program with an
	// open transaction does, until release is called. Nil for stores without
	// transactions of others, or with one transaction at a time.
	LockRow func(t T, name string) (release func())

	// Rows counts the store's records of queues, including those without
	// tickets. Nil if the test cannot do that, or the store keeps none for long.
	Rows func(t T) int

	// LeaveOut names the cases that are not run on this store, each with its
	// reason, which is printed. An unknown name is an error.
	LeaveOut map[string]string

	bubble bool
}

// A Case is one case of the suite.
type Case struct {
	Name  string // of the subtest
	Rules string // "Join 1, F4": the duties of package driver that it checks, and the faults
	Needs Needs
	Alone bool // not at the same time as other cases: it counts resources or disturbs the store
	run   func(*world)
}

// Needs is the set of a driver's traits and a harness's means that a case needs.
type Needs uint32

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
	HasRights
	OpenAt
	HasForeign
	HasElsewhere
	LockRow
	Rows
	FailPushes
	Marks
)

var needNames = []string{
	"Shared", "Owner", "Fair", "Push", "Fencing",
	"Pause", "Restart", "LoseData", "Snapshot", "StepClock",
	"Rights", "OpenAt", "Foreign", "Elsewhere", "LockRow", "Rows", "FailPushes", "Marks",
}

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

// has returns the needs that the driver and the harness meet.
func (h *Harness) has(tr driver.Traits) Needs {
	var n Needs
	for i, ok := range []bool{
		tr.Shared, tr.Owner, tr.Fair, tr.Push, tr.Fencing,
		h.Pause != nil, h.Restart != nil, h.LoseData != nil, h.Snapshot != nil, h.StepClock != nil,
		h.Rights != nil, h.OpenAt != nil, h.Foreign != nil, h.Elsewhere != nil, h.LockRow != nil, h.Rows != nil, h.FailPushes != nil, tr.Marks,
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
		renewCases, leaveCases, pushCases, breakCases, viewCases, nameCases, lifeCases, closeCases, openCases, storeCases, rightsCases,
		programCases, foreignCases, elsewhereCases, rowCases, agedCases, edgeCases, markCases, hammerCases,
	} {
		all = append(all, cases...)
	}
	return all
}

// Run runs the suite on a store, with a subtest for each case. It leaves out the
// cases that the driver or the harness has no means for, and logs their names.
// Some cases count goroutines and connections: do not call Run from two parallel
// tests of one process.
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

// RunBubbles is Run for a store that lives by the process's clock. Each case
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

// RunCase runs one case. In a bubble, call it there, with a Harness made by
// [InBubble].
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
