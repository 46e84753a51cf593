package drivertest_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivertest"
	"github.com/holdfast-go/holdfast/internal/testkit/broken"
)

// caseOf returns a case of the suite.
func caseOf(t *testing.T, name string) drivertest.Case {
	t.Helper()
	for _, c := range drivertest.Cases() {
		if c.Name == name {
			return c
		}
	}
	t.Fatalf("there is no case %q", name)
	return drivertest.Case{}
}

// unordered is a driver that says that it keeps no order.
type unordered struct{ driver.Driver }

func (d unordered) Traits() driver.Traits {
	tr := d.Driver.Traits()
	tr.Fair = false
	return tr
}

// TestEdgesBite checks that case edges fails on stores that let places end too early or
// never, and, where no order is promised, on those that are wrong in more than the order.
func TestEdgesBite(t *testing.T) {
	c := caseOf(t, "edges")
	for _, x := range []struct {
		flaw string
		fair bool
		want string // "": it passes
	}{
		{broken.None, true, ""},
		{"early", true, "its place ends before its lease"},
		{"immortal", true, "the queue is"},
		{"repeat-moves-up", true, "are ahead"},
		{broken.None, false, ""},
		{"last-come", false, ""},
		{"early", false, "its place ends before its lease"},
		{"two-holders", false, "units are held of 1"},
		{"leave-is-release", false, "units are held of 1"},
		{"revives", false, "walks over the edges"},
	} {
		name := x.flaw + map[bool]string{true: " in order", false: " without order"}[x.fair]
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				failures := drivertest.Record(name, func(r drivertest.T) {
					s := broken.NewStore(x.flaw)
					drivertest.RunCase(r, drivertest.InBubble(drivertest.Harness{Open: func(drivertest.T) driver.Driver {
						if x.fair {
							return broken.New(s)
						}
						return unordered{broken.New(s)}
					}}), c)
				})
				time.Sleep(2 * time.Hour) // for what was left behind to end
				all := strings.Join(failures, "\n")
				if (x.want == "") != (len(failures) == 0) || !strings.Contains(all, x.want) {
					t.Errorf("%d failures, want %q: %.600s", len(failures), x.want, all)
				}
			})
		})
	}
}
