package redlock

import (
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/backends"
)

// One of three nodes cannot be understood: the other two decide. Two cannot: that
// is an error, and nobody else is granted what is held.
func TestF11_GarbledAnswers(t *testing.T) {
	t.Parallel()
	ss := start(t, 3)
	for n, what := range []string{"minority", "majority"} {
		t.Run(what, func(t *testing.T) {
			target := ss.target("")
			var all []*backends.Garbler
			for _, s := range ss[:n+1] {
				g := backends.Garble(t, s.Addr())
				target = strings.Replace(target, s.Addr(), g.Addr(), 1)
				all = append(all, g)
			}
			d, err := openTarget(target)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = d.Close() })
			if err := d.Watch(t.Context(), func(string, driver.Place) {}); err != nil { // who waits has to hear
				t.Fatal(err)
			}
			direct := ss.open(t, "")
			t.Cleanup(func() { _ = direct.Close() })
			(&backends.Garbling{At: all, Driver: d, Direct: direct, Wanted: true, Serves: n == 0}).Run(t)
		})
	}
}
