package drivertest_test

import (
	"context"
	"fmt"
	"hash/fnv"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivertest"
	"github.com/holdfast-go/holdfast/memlock"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Example runs one case by itself, on a store in memory.
func Example() {
	store := memlock.NewStore()
	h := drivertest.Harness{
		Open: func(drivertest.T) driver.Driver { return memlock.New(store) },
	}
	for _, c := range drivertest.Cases() {
		if c.Name == "one-holder" {
			failures := drivertest.Record("example", func(t drivertest.T) { drivertest.RunCase(t, h, c) })
			fmt.Printf("%s checks %s: %d failures\n", c.Name, c.Rules, len(failures))
		}
	}
	// Output: one-holder checks Join 3, 4, F57: 0 failures
}

// TestCasesHaveUniqueNamesAndRules checks that each case has a name of its own
// and says which rules it checks.
func TestCasesHaveUniqueNamesAndRules(t *testing.T) {
	seen := make(map[string]bool)
	name := regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)
	rule := regexp.MustCompile(`^(Driver|OpenLimit|Traits|Join|Renew|Leave|Watch|Inspect|Names|Break|Mark|SetMark|Close|Identifier|Checker|F?\d+)( \d+)?$`)
	for _, c := range drivertest.Cases() {
		if !name.MatchString(c.Name) || seen[c.Name] {
			t.Errorf("name %q", c.Name)
		}
		seen[c.Name] = true
		for r := range strings.SplitSeq(c.Rules, ", ") {
			if !rule.MatchString(r) {
				t.Errorf("%s checks rule %q", c.Name, r)
			}
		}
	}
	if s := (drivertest.Shared | drivertest.StepClock).String(); s != "Shared, StepClock" {
		t.Errorf("needs are %q", s)
	}
	names := drivertest.Nasty()
	slices.Sort(names)
	if len(slices.Compact(names)) != len(drivertest.Nasty()) {
		t.Errorf("a nasty name is there twice")
	}
}

// TestSuiteKeepsTheCallersGuarantees checks that the suite itself keeps the
// guarantees that the seam gives to drivers.
func TestSuiteKeepsTheCallersGuarantees(t *testing.T) {
	drivertest.RunBubbles(t, func(t drivertest.T) drivertest.Harness {
		s := memlock.NewStore()
		return drivertest.Harness{
			Open: func(t drivertest.T) driver.Driver { return drivertest.Strict(t, laneDriver{memlock.New(s)}) },
			TTL:  30 * time.Second,
			LeaveOut: map[string]string{
				"hammer-faults": "its faults break guarantees by their nature; it has a check of its own before them",
			},
		}
	})
}

// laneDriver is a driver with many lanes.
type laneDriver struct{ *memlock.Driver }

func (d laneDriver) Traits() driver.Traits {
	tr := d.Driver.Traits()
	tr.Lane = func(name string) uint64 {
		h := fnv.New64a()
		_, _ = h.Write([]byte(name))
		return h.Sum64() % 3
	}
	return tr
}

// TestMinimalDriverPasses runs the suite on a driver that offers the least that
// is legal: no pushes, no Ahead or Holder, no shared locks, owners or fairness.
func TestMinimalDriverPasses(t *testing.T) {
	drivertest.RunBubbles(t, func(t drivertest.T) drivertest.Harness {
		s := memlock.NewStore()
		return drivertest.Harness{
			Open: func(drivertest.T) driver.Driver { return minimalDriver{memlock.New(s)} },
			TTL:  30 * time.Second,
		}
	})
}

type minimalDriver struct{ driver.Driver }

func (d minimalDriver) Traits() driver.Traits {
	tr := d.Driver.Traits()
	return driver.Traits{Scheme: "least", MinTTL: tr.MinTTL, MaxTTL: tr.MaxTTL, Granularity: time.Second}
}

func (d minimalDriver) Watch(ctx context.Context, notify func(string, driver.Status)) error {
	return d.Driver.Watch(ctx, func(string, driver.Status) {})
}

func (d minimalDriver) Join(ctx context.Context, t *driver.Ticket, wait bool) (driver.Status, error) {
	p, err := d.Driver.Join(ctx, t, wait)
	return withoutDetails(p), err
}

func (d minimalDriver) Renew(ctx context.Context, refs []driver.Ref) ([]driver.Status, error) {
	ps, err := d.Driver.Renew(ctx, refs)
	for i := range ps {
		ps[i] = withoutDetails(ps[i])
	}
	return ps, err
}

func (d minimalDriver) Inspect(ctx context.Context, name string) (driver.Queue, error) {
	l, err := d.Driver.Inspect(ctx, name)
	l.Token = 0
	for i := range l.Tickets {
		l.Tickets[i].Token = 0
	}
	return l, err
}

func withoutDetails(p driver.Status) driver.Status {
	if p.State == driver.Waiting {
		p.Ahead, p.Recheck = -1, 0
	}
	p.Token, p.Holder = 0, ""
	return p
}

// TestLeaveOutNeedsAKnownCase checks that LeaveOut refuses the name of an
// unknown case.
func TestLeaveOutNeedsAKnownCase(t *testing.T) {
	failures := drivertest.Record("leave out", func(rt drivertest.T) {
		drivertest.Chosen(rt, drivertest.Harness{LeaveOut: map[string]string{"join-free": "reason", "no-such-case": "reason"}})
	})
	if len(failures) != 1 || !strings.Contains(failures[0], "no-such-case") {
		t.Errorf("failures are %q", failures)
	}
}

func TestRecordReturnsFailures(t *testing.T) {
	var order []string
	failures := drivertest.Record("name", func(t drivertest.T) {
		t.Cleanup(func() { order = append(order, "first") })
		t.Cleanup(func() { order = append(order, "last") })
		if t.Failed() || t.Name() != "name" {
			order = append(order, "wrong")
		}
		t.Errorf("one %d", 1)
		if !t.Failed() {
			order = append(order, "wrong")
		}
		t.Fatalf("two")
		order = append(order, "not reached")
	})
	if !slices.Equal(failures, []string{"one 1", "two"}) || !slices.Equal(order, []string{"last", "first"}) {
		t.Errorf("failures %q, order %q", failures, order)
	}
	if failures := drivertest.Record("name", func(drivertest.T) {}); failures != nil {
		t.Errorf("failures %q", failures)
	}
}
