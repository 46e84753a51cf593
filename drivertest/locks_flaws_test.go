package drivertest

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testkit/broken"
)

// newFlawed makes a store with one flaw.
type newFlawed func() *flawedStore

type flawedStore struct {
	store *broken.Store
	wrap  func(driver.Driver) driver.Driver // nil for none
}

func (f *flawedStore) open() driver.Driver {
	if f.wrap == nil {
		return broken.New(f.store)
	}
	return f.wrap(broken.New(f.store))
}

// brokenStore is a store with a flaw of package broken.
func brokenStore(name string) newFlawed {
	return func() *flawedStore {
		s := broken.NewStore(name)
		s.StepClock(30 * 365 * 24 * time.Hour) // bubbles begin in 2000, tokens in 2025
		return &flawedStore{store: s}
	}
}

// wrappedStore is a sound store behind a driver with a flaw.
func wrappedStore(wrap func(driver.Driver) driver.Driver) newFlawed {
	return func() *flawedStore {
		f := brokenStore(broken.None)()
		f.wrap = wrap
		return f
	}
}

// flaws has, for each case, one that it is there to see.
var flaws = map[string]newFlawed{
	"count exactly":                          brokenStore("idle-restarts"),
	"stock":                                  brokenStore("two-holders"),
	"nested":                                 brokenStore("two-holders"),
	"held error":                             brokenStore("leaked-waiter"),
	"order":                                  brokenStore("last-come"),
	"work longer than the lease":             brokenStore("renews-not"),
	"break":                                  brokenStore("break-says-nil"),
	"close":                                  wrappedStore(newLeaveNothing),
	"many holds":                             brokenStore("renews-not"),
	"readers and writers":                    brokenStore("two-holders"),
	"a writer is not passed":                 brokenStore("readers-overtake"),
	"semaphore":                              brokenStore("heads-counted"),
	"kinds":                                  brokenStore("any-limit"),
	"owner":                                  brokenStore("owner-ignored"),
	"multi":                                  brokenStore("cross-leave"),
	"cancelled waits":                        brokenStore("abandons"),
	"dead holder":                            brokenStore("early"),
	"dead waiters":                           brokenStore("dead-granted"),
	"lost answers":                           brokenStore("two-holders"),
	"lost pushes":                            brokenStore("two-holders"),
	"silence longer than a lease":            wrappedStore(newSessionExpiry),
	"a store silent for longer than a lease": wrappedStore(newSessionExpiry),
	"deaf client":                            wrappedStore(newLeaveNothing),
	"refused for a while":                    wrappedStore(newSessionExpiry),
	"slow answers":                           brokenStore("two-holders"),
	"crowd":                                  brokenStore("two-holders"),
	"no pushes":                              brokenStore("unheard-refused"),
	"loss found by the release":              brokenStore("always-held"),
	"several locks and a silent store":       wrappedStore(newLeaveNothing),
	"options and kinds":                      brokenStore("any-limit"),
	"shutdown":                               brokenStore("two-holders"),
	"close under functions":                  brokenStore("two-holders"),
	"close under a function that stays":      wrappedStore(newCloseReleases),
	"renewed by hand":                        brokenStore("renews-not"),
	"held on behalf of another":              wrappedStore(func(d driver.Driver) driver.Driver { return namesNobody{d} }),
	"max hold under functions":               brokenStore("two-holders"),
	"close while the store is silent":        brokenStore("close-waits"),
	"closed by a callback":                   wrappedStore(newLeaveNothing),
	"once":                                   brokenStore("mark-stays"),
	"once inside an owner's hold":            brokenStore("owner-ignored"),
	"once on behalf of another":              wrappedStore(func(d driver.Driver) driver.Driver { return asciiMarks{d} }),
	"the default TTL":                        wrappedStore(func(d driver.Driver) driver.Driver { return shortLease{d} }),
}

// leaveNothing answers every Leave, and removes no ticket.
type leaveNothing struct{ driver.Driver }

func newLeaveNothing(d driver.Driver) driver.Driver { return leaveNothing{d} }

func (leaveNothing) Leave(_ context.Context, refs []driver.Ref) ([]driver.Status, error) {
	ps := make([]driver.Status, len(refs))
	for i := range ps {
		ps[i].State = driver.Held
	}
	return ps, nil
}

// closeReleases gives up at Close the tickets that it still has.
type closeReleases struct {
	driver.Driver
	mu     sync.Mutex
	joined []driver.Ref
}

func newCloseReleases(d driver.Driver) driver.Driver { return &closeReleases{Driver: d} }

func (d *closeReleases) Join(ctx context.Context, t *driver.Ticket, wait bool) (driver.Status, error) {
	d.mu.Lock()
	d.joined = append(d.joined, driver.Ref{Ticket: t, State: driver.Held})
	d.mu.Unlock()
	return d.Driver.Join(ctx, t, wait)
}

func (d *closeReleases) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, _ = d.Leave(context.Background(), d.joined)
	return d.Driver.Close()
}

// namesNobody has no metadata of tickets.
type namesNobody struct{ driver.Driver }

func (d namesNobody) Inspect(ctx context.Context, name string) (driver.Queue, error) {
	q, err := d.Driver.Inspect(ctx, name)
	for i := range q.Tickets {
		q.Tickets[i].Meta = ""
	}
	return q, err
}

// asciiMarks keeps of a mark what is ASCII.
type asciiMarks struct{ driver.Driver }

func (d asciiMarks) Mark(ctx context.Context, name string) (driver.Mark, error) {
	return d.Driver.(driver.Marker).Mark(ctx, name)
}

func (d asciiMarks) SetMark(ctx context.Context, name string, to driver.Mark) error {
	to.Value = slices.DeleteFunc(slices.Clone(to.Value), func(b byte) bool { return b > 0x7f })
	return d.Driver.(driver.Marker).SetMark(ctx, name, to)
}

// shortLease reports a third of each lease.
type shortLease struct{ driver.Driver }

func (d shortLease) Join(ctx context.Context, t *driver.Ticket, wait bool) (driver.Status, error) {
	p, err := d.Driver.Join(ctx, t, wait)
	p.Lease /= 3
	return p, err
}

// sessionExpiry is a driver with a session, which ends when no request was
// answered for a lease. The driver is of no use afterwards.
type sessionExpiry struct {
	driver.Driver
	mu         sync.Mutex
	lastAnswer time.Time
}

func newSessionExpiry(d driver.Driver) driver.Driver {
	return &sessionExpiry{Driver: d, lastAnswer: time.Now()}
}

func (d *sessionExpiry) Join(ctx context.Context, t *driver.Ticket, wait bool) (driver.Status, error) {
	d.mu.Lock()
	over := time.Since(d.lastAnswer) > t.TTL
	d.mu.Unlock()
	if over {
		return driver.Status{}, driver.Errorf(driver.Refused, "the session has ended")
	}
	p, err := d.Driver.Join(ctx, t, wait)
	if err == nil {
		d.checkSession()
	}
	return p, err
}

func (d *sessionExpiry) Renew(ctx context.Context, refs []driver.Ref) ([]driver.Status, error) {
	ps, err := d.Driver.Renew(ctx, refs)
	if err == nil {
		d.checkSession()
	}
	return ps, err
}

func (d *sessionExpiry) checkSession() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lastAnswer = time.Now()
}

func failures(t *testing.T, c lockCase, f newFlawed) (failures []string) {
	synctest.Test(t, func(t *testing.T) {
		f := f()
		h := InBubble(Harness{
			Open:  func(T) driver.Driver { return f.open() },
			Pause: func(T) func() { return f.store.Pause() },
			TTL:   time.Second, Slack: 50 * time.Millisecond,
		})
		traits := broken.New(f.store).Traits()
		failures = Record(c.name, func(t T) { playLocks(t, h, c, traits) })
		time.Sleep(time.Hour) // for what was left behind to end
	})
	return failures
}

// TestEveryCaseFailsForSomeFlaw checks that each case fails for some flaw.
func TestEveryCaseFailsForSomeFlaw(t *testing.T) {
	known := make(map[string]bool)
	for _, c := range lockCases() {
		known[c.name] = true
		t.Run(c.name, func(t *testing.T) {
			f := flaws[c.name]
			if f == nil {
				t.Fatal("no flaw fails it")
			}
			if failures := failures(t, c, brokenStore(broken.None)); len(failures) > 0 {
				t.Errorf("a store without a flaw fails it: %.300s", strings.Join(failures, "; "))
			}
			for range 20 { // a case may depend on the order of events
				if failures := failures(t, c, f); len(failures) > 0 {
					t.Logf("%.300s", strings.Join(failures, "; "))
					return
				}
			}
			t.Error("it passes")
		})
	}
	for name := range flaws {
		if !known[name] {
			t.Errorf("there is no case %q", name)
		}
	}
}
