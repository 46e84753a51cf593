package redlock

import (
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
)

// TestF11_GarbledAnswers checks that when the answers of one of three nodes
// cannot be parsed, the other two decide. When those of two cannot be parsed,
// that is an error, and no other client is granted a held lock.
func TestF11_GarbledAnswers(t *testing.T) {
	t.Parallel()
	ss := start(t, 3)
	for n, what := range []string{"minority", "majority"} {
		t.Run(what, func(t *testing.T) {
			target := ss.target("")
			var all []*servers.Garbler
			for _, s := range ss[:n+1] {
				g := servers.Garble(t, s.Addr())
				target = strings.Replace(target, s.Addr(), g.Addr(), 1)
				all = append(all, g)
			}
			d, err := openTarget(target)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = d.Close() })
			if err := d.Watch(t.Context(), func(string, driver.Status) {}); err != nil { // waiters need pushes
				t.Fatal(err)
			}
			direct := ss.open(t, "")
			t.Cleanup(func() { _ = direct.Close() })
			(&servers.Garbling{At: all, Driver: d, Direct: direct, Wanted: true, Serves: n == 0}).Run(t)
		})
	}
}
