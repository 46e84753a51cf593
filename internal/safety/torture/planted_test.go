package torture

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/testkit/broken"
)

// TestPlantedBugsAreFound checks that each bug is found by the check that it
// names.
func TestPlantedBugsAreFound(t *testing.T) {
	for _, b := range broken.Bugs() {
		t.Run(strings.ReplaceAll(b.Name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			cfg := config("planted:")
			cfg.Duration, cfg.TTL, cfg.Goroutines = 2*time.Second, 500*time.Millisecond, 5
			cfg.Slack, cfg.patient = 0, 5*time.Second
			cfg.Long = b.Long
			if b.Check == "C8" { // a place that is left must not expire before it is found
				cfg.TTL = 2 * time.Second
			}
			// The result depends on the order of events: a slow machine may
			// need several runs.
			for cfg.Seed = 1; cfg.Seed <= 20; cfg.Seed++ {
				cfg.Open = b.Open(t.Cleanup)
				r, err := Run(t.Context(), cfg)
				if err != nil {
					t.Fatal(err)
				}
				i := slices.IndexFunc(r.Violations, func(v string) bool { return strings.HasPrefix(v, b.Check+" ") })
				if i >= 0 {
					t.Logf("of %d: %.1000s", len(r.Violations)+r.More, r.Violations[i])
					return
				}
				t.Logf("not with seed %d: %d calls, %d grants", cfg.Seed, r.Calls, r.Grants)
			}
			t.Errorf("%s does not see it", b.Check)
		})
	}
}

// TestSoundStoresPass checks that the same runs find nothing on the two stores
// without a planted bug.
func TestSoundStoresPass(t *testing.T) {
	for name, open := range broken.Sound() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := config("sound:")
			cfg.Duration, cfg.Long, cfg.Open = 2*time.Second, 50, open(t.Cleanup)
			sound(t, cfg, 0)
		})
	}
}
