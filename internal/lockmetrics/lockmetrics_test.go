package lockmetrics

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
)

func storeError(c driver.Class) error {
	return &holdfast.StoreError{Op: "acquire", Err: driver.Errorf(c, "x")}
}

// TestResultOfEachError checks the result of each error of a call and of a hold.
func TestResultOfEachError(t *testing.T) {
	lost := func(r holdfast.LossReason) error { return &holdfast.LostError{Reason: r} }
	for _, test := range []struct {
		err        error
		wait, hold Result
	}{
		{nil, Result{"acquired", ""}, Result{"released", ""}},
		{&holdfast.HeldError{}, Result{"held", ""}, Result{"unconfirmed", ""}},
		{&holdfast.WaitError{Cause: context.DeadlineExceeded}, Result{"timed_out", ""}, Result{"unconfirmed", ""}},
		{&holdfast.WaitError{Cause: holdfast.ErrMaxWait}, Result{"timed_out", ""}, Result{"unconfirmed", ""}},
		{&holdfast.WaitError{Cause: context.Canceled}, Result{"canceled", ""}, Result{"unconfirmed", ""}},
		{fmt.Errorf("a: %w", holdfast.ErrClosed), Result{"closed", ""}, Result{"closed", ""}},
		{fmt.Errorf("a: %w", holdfast.ErrKindMismatch), Result{"failed", "kind_mismatch"}, Result{"unconfirmed", ""}},
		{storeError(driver.Unavailable), Result{"failed", "unavailable"}, Result{"unconfirmed", ""}},
		{storeError(driver.Unknown), Result{"failed", "unknown"}, Result{"unconfirmed", ""}},
		{storeError(driver.Refused), Result{"failed", "refused"}, Result{"unconfirmed", ""}},
		{errors.New("else"), Result{"failed", "_OTHER"}, Result{"unconfirmed", ""}},
		{lost(holdfast.LossExpired), Result{"failed", "_OTHER"}, Result{"lost", "expired"}},
		{lost(holdfast.LossGone), Result{"failed", "_OTHER"}, Result{"lost", "gone"}},
		{lost(holdfast.LossMaxHold), Result{"failed", "_OTHER"}, Result{"lost", "max_hold"}},
	} {
		if got := Waits[WaitResult(test.err)]; got != test.wait {
			t.Errorf("%v: the wait is %v, want %v", test.err, got, test.wait)
		}
		if got := Holds[HoldResult(test.err)]; got != test.hold {
			t.Errorf("%v: the hold is %v, want %v", test.err, got, test.hold)
		}
	}
}

// TestGroupsAreBounded checks that each group and kind has one set of instruments, that
// groups beyond MaxGroups share one, and that goroutines agree.
func TestGroupsAreBounded(t *testing.T) {
	type instruments struct {
		group string
		kind  holdfast.Kind
	}
	g := NewGroups(nil, func(group string, kind holdfast.Kind) *instruments { return &instruments{group, kind} })
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for i := range 2 * MaxGroups {
				for _, kind := range []holdfast.Kind{holdfast.KindMutex, holdfast.KindReader, holdfast.KindWriter, holdfast.KindPermits} {
					e := holdfast.Event{Name: fmt.Sprintf("g%d/name", i), Kind: kind}
					in := g.Of(&e)
					if in.kind != kind || in.group != fmt.Sprintf("g%d", i) && in.group != OtherGroup || g.Of(&e) != in {
						t.Errorf("%v has %v", e, in)
					}
				}
			}
		})
	}
	all.Wait()
	groups := map[string]int{}
	g.Each(func(in *instruments) { groups[in.group]++ })
	if len(groups) != MaxGroups+1 || groups[OtherGroup] != 4 {
		t.Errorf("%d groups, %d kinds of others", len(groups), groups[OtherGroup])
	}
}

// TestGroupOfEachName checks the group of names that follow each other, so that the
// group found last is not taken for that of a name that only begins like it.
func TestGroupOfEachName(t *testing.T) {
	type instruments struct{ group string }
	create := func(group string, _ holdfast.Kind) *instruments { return &instruments{group} }
	first, upper := NewGroups(nil, create), NewGroups(strings.ToUpper, create)
	for _, test := range []struct{ name, group string }{
		{"a", "a"}, {"a/1", "a"}, {"ab", "ab"}, {"ab/1", "ab"}, {"a/b/c", "a"}, {"", ""}, {"/a", ""}, {"/", ""}, {"a", "a"},
		{"i", "i"}, {"ab/2", "ab"}, {"a", "a"}, {"", ""}, {"h", "h"}, {"/x", ""},
	} {
		e := holdfast.Event{Name: test.name, Kind: holdfast.KindMutex}
		for range 2 {
			if got := first.Of(&e).group; got != test.group {
				t.Errorf("the group of %q is %q, want %q", test.name, got, test.group)
			}
			if got := upper.Of(&e).group; got != strings.ToUpper(test.name) {
				t.Errorf("the group of %q is %q with a function of the user's", test.name, got)
			}
		}
	}
}

// TestGroupsAreText checks that a group which is not valid UTF-8 is that of the same text
// with U+FFFD in the place of what is not, also beyond MaxGroups, and that the lookup of
// one that is valid allocates nothing.
func TestGroupsAreText(t *testing.T) {
	type instruments struct{ group string }
	g := NewGroups(func(name string) string { return name }, func(group string, _ holdfast.Kind) *instruments { return &instruments{group} })
	of := func(name string) *instruments { return g.Of(&holdfast.Event{Name: name, Kind: holdfast.KindMutex}) }
	for _, test := range []struct{ name, group string }{
		{"\xff", "\ufffd"}, {"commande-\xc3", "commande-\ufffd"}, {"commande-\xc3\xff", "commande-\ufffd"},
		{"commande-\ufffd", "commande-\ufffd"}, {"é", "é"}, {"", ""},
	} {
		for range 2 {
			if got := of(test.name).group; got != test.group {
				t.Errorf("the group of %q is %q, want %q", test.name, got, test.group)
			}
		}
	}
	if of("a\xff") != of("a\xfe") || of("a\xff") != of("a\ufffd") {
		t.Error("groups of one text have several series")
	}
	for i := range 2 * MaxGroups {
		of(fmt.Sprint(i))
	}
	if got := of("a\xfe").group; got != "a\ufffd" {
		t.Errorf("a known group is %q once there are many", got)
	}
	if got := of("b\xfe").group; got != OtherGroup {
		t.Errorf("a new group is %q once there are many", got)
	}
	seen := map[string]bool{}
	g.Each(func(in *instruments) {
		if seen[in.group] {
			t.Errorf("two series of %q", in.group)
		}
		seen[in.group] = true
	})
	events := []holdfast.Event{{Name: "é"}, {Name: "0"}, {Name: "h"}} // the last two share a place in Groups.last
	if n := testing.AllocsPerRun(100, func() {
		for i := range events {
			g.Of(&events[i])
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestHistogramOfLongHolds checks the numbers of durations whose sum is beyond what a
// time.Duration holds, as the holds of many leaders have after years.
func TestHistogramOfLongHolds(t *testing.T) {
	var h Histogram
	const century = 100 * 365 * 24 * time.Hour
	for range 10 {
		h.Observe(century)
	}
	h.Observe(0)
	h.Observe(time.Millisecond)
	d := h.Distribution()
	if d.Count != 12 || d.Sum != 10*century.Seconds()+.001 || d.Min != 0 || d.Max != century.Seconds() {
		t.Errorf("%+v", d)
	}
	if d.Counts[0] != 1 || d.Counts[1] != 1 || d.Counts[len(Buckets)] != 10 {
		t.Errorf("buckets %v", d.Counts)
	}
}

// TestHistogramOfManyGoroutines checks that no duration is missing, and that each
// Distribution has the numbers of the same durations.
func TestHistogramOfManyGoroutines(t *testing.T) {
	var h Histogram
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 20_000 {
				h.Observe(time.Second)
				if d := h.Distribution(); d.Sum != float64(d.Count) || d.Counts[10] != d.Count {
					t.Errorf("%+v", d)
					return
				}
			}
		})
	}
	all.Wait()
	if d := h.Distribution(); d.Count != 80_000 {
		t.Errorf("%d durations of 80,000", d.Count)
	}
}
