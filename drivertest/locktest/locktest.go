// Package locktest runs the lock as its users see it, the core on a driver,
// against a store: the second half of the conformance suite. Package
// drivertest checks what a driver answers; this one checks what becomes of it.
//
//	func TestLocks(t *testing.T) {
//		locktest.Run(t, drivertest.Harness{Open: open, TTL: 2 * time.Second})
//	}
package locktest

import (
	"context"
	"crypto/rand"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivertest"
	"github.com/holdfast-go/holdfast/drivertest/faults"
)

// testCase is one case: what it checks in words, and the faults it covers.
type testCase struct {
	name  string
	about string
	needs func(driver.Traits) bool // nil for all
	run   func(w *world)
}

// Run runs all cases on a store, a subtest for each. Cases that the driver's
// Traits rule out are left out, and named in the log. Of the Harness it uses
// Open, TTL and Slack.
func Run(t *testing.T, h drivertest.Harness) {
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
	for _, c := range cases() {
		if c.needs != nil && !c.needs(traits) {
			t.Logf("left out, by the driver's Traits: %s", c.name)
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			t.Log(c.about)
			c.run(&world{T: t, h: h, traits: traits, name: "lt-" + rand.Text()[:10]})
		})
	}
}

func cases() []testCase {
	return append(append(basicCases, sharedCases...), hardCases...)
}

// world is what one case plays in.
type world struct {
	*testing.T
	h      drivertest.Harness
	traits driver.Traits
	name   string // of a lock of this case's own
}

// client opens a client, which is closed at the end of the case.
func (w *world) client(opts ...holdfast.Option) *holdfast.Client {
	w.Helper()
	return w.over(w.h.Open(w.T), opts...)
}

func (w *world) over(d driver.Driver, opts ...holdfast.Option) *holdfast.Client {
	w.Helper()
	c, err := holdfast.New(d, append([]holdfast.Option{holdfast.WithTTL(w.h.TTL)}, opts...)...)
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { _ = c.Close() })
	return c
}

// limit is a context for what should take no time at all but for the machine.
func (w *world) limit() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 10*w.h.TTL+30*time.Second)
	w.Cleanup(cancel)
	return ctx
}

func (w *world) lock(m *holdfast.Mutex) *holdfast.Hold {
	w.Helper()
	h, err := m.Lock(w.limit())
	if err != nil {
		w.Fatalf("Lock: %v", err)
	}
	return h
}

func (w *world) unlock(h *holdfast.Hold) {
	w.Helper()
	if err := h.Unlock(); err != nil {
		w.Fatalf("Unlock: %v", err)
	}
}

// until waits for a condition that has to come true soon.
func (w *world) until(what string, cond func() bool) {
	w.Helper()
	for end := time.Now().Add(10*w.h.TTL + 30*time.Second); !cond(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			w.Fatalf("not so in time: %s", what)
		}
	}
}

// tickets counts the tickets of a name at the store.
func (w *world) tickets(c *holdfast.Client, name string) int {
	w.Helper()
	l, err := c.Inspect(w.limit(), name)
	if err != nil {
		w.Fatalf("Inspect: %v", err)
	}
	return len(l.Tickets)
}

// wire is a driver whose store can become silent, as if its cable were cut.
type wire struct {
	driver.Driver
	dead atomic.Bool
}

func (d *wire) Join(ctx context.Context, t *driver.Ticket, wait bool) (driver.Place, error) {
	if d.dead.Load() {
		<-ctx.Done()
		return driver.Place{}, ctx.Err()
	}
	return d.Driver.Join(ctx, t, wait)
}

func (d *wire) Renew(ctx context.Context, refs []driver.Ref) ([]driver.Place, error) {
	if d.dead.Load() {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return d.Driver.Renew(ctx, refs)
}

func (d *wire) Leave(ctx context.Context, refs []driver.Ref) ([]driver.Place, error) {
	if d.dead.Load() {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return d.Driver.Leave(ctx, refs)
}

func (d *wire) Watch(ctx context.Context, moved func(string, driver.Place)) error {
	return d.Driver.Watch(ctx, func(id string, p driver.Place) {
		if !d.dead.Load() {
			moved(id, p)
		}
	})
}

// faulty opens a client behind a plan of faults.
func (w *world) faulty(plan string) *holdfast.Client {
	w.Helper()
	p, err := faults.Parse(plan)
	if err != nil {
		w.Fatal(err)
	}
	return w.over(faults.Wrap(w.h.Open(w.T), p))
}
