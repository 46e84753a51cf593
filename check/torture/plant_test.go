package torture

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/check/planted"
)

// TestPlantedBugs: each is seen by the check that is there for it.
func TestPlantedBugs(t *testing.T) {
	for _, b := range planted.Bugs() {
		t.Run(strings.ReplaceAll(b.Name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			cfg := config("planted:")
			cfg.Duration, cfg.TTL, cfg.Goroutines = 2*time.Second, 500*time.Millisecond, 5
			cfg.Slack, cfg.patient = 0, 5*time.Second
			cfg.Long = b.Long
			if b.Check == "C8" { // what is left must not run out before it is seen
				cfg.TTL = 2 * time.Second
			}
			// What a run sees depends on who comes when: a slow machine may need
			// a few.
			for cfg.Seed = 1; cfg.Seed <= 6; cfg.Seed++ {
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

// TestSoundStores: without a bug the same runs see none, on the two stores that
// bugs are planted in.
func TestSoundStores(t *testing.T) {
	for name, open := range planted.Sound() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := config("sound:")
			cfg.Duration, cfg.Long, cfg.Open = 2*time.Second, 50, open(t.Cleanup)
			r, err := Run(t.Context(), cfg)
			sound(t, r, err)
		})
	}
}
