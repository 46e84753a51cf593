package drivertest

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testkit/faults"
)

// lockCase is one case: what it checks in words, and the faults it covers.
type lockCase struct {
	name  string
	about string
	needs func(driver.Traits) bool // nil for all
	pause bool                     // needs Harness.Pause, and the store for itself
	run   func(w *lockWorld)
}

// RunLocks runs all cases of the lock, the core on a driver, on a store, a
// subtest for each. Cases that the driver's Traits rule out are left out, and
// named in the log. Of the Harness it uses Open, TTL, Slack, Pause and LeaveOut.
func RunLocks(t *testing.T, h Harness) {
	d := h.Open(t)
	traits := d.Traits()
	if err := d.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	if h.TTL == 0 {
		h.TTL = max(time.Second, traits.MinTTL)
	}
	if h.Slack == 0 {
		h.Slack = time.Second
	}
	for _, c := range lockCases() {
		if c.needs != nil && !c.needs(traits) {
			t.Logf("left out, by the driver's Traits: %s", c.name)
			continue
		}
		if c.pause && h.Pause == nil {
			t.Logf("left out, the store cannot be paused: %s", c.name)
			continue
		}
		if reason, out := h.LeaveOut[c.name]; out {
			t.Logf("left out: %s: %s", c.name, reason)
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			if !c.pause {
				t.Parallel()
			}
			t.Log(c.about)
			playLocks(t, h, c, traits)
		})
	}
}

func playLocks(t T, h Harness, c lockCase, traits driver.Traits) {
	w := &lockWorld{T: t, h: h, traits: traits, name: "lt-" + rand.Text()[:10]}
	if !h.bubble {
		w.still = watchStandstills()
		defer w.still.end()
	}
	c.run(w)
}

func lockCases() []lockCase {
	return slices.Concat(basicCases, sharedCases, hardCases, silenceCases, crowdCases, endCases, closingCases, onceCases, manualCases)
}

// lockWorld is the stage of one case: a store and a name.
type lockWorld struct {
	T
	h      Harness
	traits driver.Traits
	name   string // of a lock of this case's own
	still  *standstills
}

func (w *lockWorld) Error(args ...any) {
	w.Helper()
	w.Errorf("%s", fmt.Sprint(args...))
}

func (w *lockWorld) Fatal(args ...any) {
	w.Helper()
	w.Fatalf("%s", fmt.Sprint(args...))
}

// client opens a client, which is closed at the end of the case.
func (w *lockWorld) client(opts ...holdfast.ClientOption) *holdfast.Client {
	w.Helper()
	return w.clientThrough(w.h.Open(w.T), opts...)
}

// clientThrough opens a client of d, and checks that the core's calls keep the
// guarantees of package driver.
func (w *lockWorld) clientThrough(d driver.Driver, opts ...holdfast.ClientOption) *holdfast.Client {
	w.Helper()
	c, err := holdfast.New(Strict(w.T, d), append([]holdfast.ClientOption{holdfast.WithTTL(w.h.TTL)}, opts...)...)
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { _ = c.Close() })
	return c
}

// limit is a context for what should take no time at all but for the machine.
func (w *lockWorld) limit() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 10*w.h.TTL+30*time.Second)
	w.Cleanup(cancel)
	return ctx
}

func (w *lockWorld) lock(m *holdfast.Mutex) *holdfast.Hold {
	w.Helper()
	h, err := m.Lock(w.limit())
	if err != nil {
		w.Fatalf("Lock: %v", err)
	}
	return h
}

func (w *lockWorld) unlock(h *holdfast.Hold) {
	w.Helper()
	if err := h.Unlock(); err != nil {
		w.Fatalf("Unlock: %v", err)
	}
}

// until waits for a condition that has to come true soon.
func (w *lockWorld) until(what string, cond func() bool) {
	w.Helper()
	for end := time.Now().Add(10*w.h.TTL + 30*time.Second); !cond(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			w.Fatalf("not so in time: %s", what)
		}
	}
}

// tickets counts the tickets of a name at the store.
func (w *lockWorld) tickets(c *holdfast.Client, name string) int {
	w.Helper()
	l, err := c.Inspect(w.limit(), name)
	if err != nil {
		w.Fatalf("Inspect: %v", err)
	}
	return len(l.Holders) + len(l.Waiters)
}

// clientWithFaults opens a client behind a plan of faults.
func (w *lockWorld) clientWithFaults(plan string, opts ...holdfast.ClientOption) *holdfast.Client {
	w.Helper()
	p, err := faults.Parse(plan)
	if err != nil {
		w.Fatal(err)
	}
	return w.clientThrough(faults.Wrap(w.h.Open(w.T), p), opts...)
}
