//go:build !race

// The race detector has its turn with TestSchedules; here it would only cost time.

package sim_test

import (
	"context"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/check/planted"
	"github.com/holdfast-go/holdfast/check/sim"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivertest/broken"
)

// most is how many schedules may go by until a bug is seen.
const most = 2000

// sees plays schedules until the check sees something, and returns its seed.
func sees(t *testing.T, check string, fresh func(*testing.T) sim.Store) {
	t.Helper()
	for i := uint64(1); i <= most; i++ {
		p := play(t, sim.Plan(i, false), fresh)
		violations, _ := p.Judge()
		for _, v := range violations {
			if strings.HasPrefix(v, check+" ") {
				t.Logf("with seed %d: %.700s", i, v)
				return
			}
		}
	}
	t.Errorf("%s does not see it in %d schedules", check, most)
}

// storeOf makes stores that package planted opens.
func storeOf(make func(cleanup func(func())) planted.Opener) func(*testing.T) sim.Store {
	return func(t *testing.T) sim.Store {
		open := make(t.Cleanup)
		return sim.Store{Open: func() driver.Driver {
			d, err := open(context.Background(), "")
			if err != nil {
				panic(err) // they have none
			}
			return d
		}}
	}
}

// TestPlantedBugs: the bugs that torture has to see in seconds of real time are
// seen in fake time too.
func TestPlantedBugs(t *testing.T) {
	for _, b := range planted.Bugs() {
		t.Run(strings.ReplaceAll(b.Name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			sees(t, b.Check, storeOf(b.Open))
		})
	}
}

// flaws are those of package broken that a user of a lock would suffer from in
// what schedules do. The others are about what schedules do not: owners, names,
// broken tickets, and the letter of the driver's contract.
var flaws = map[string]string{
	"two-holders": "C1", "leave-is-release": "C1", "first-leaver-frees": "C1", "heads-counted": "C1", "early": "C1",
	"long-lease": "C1", "renews-not": "C1", "echoes": "C1", "renews-late": "C1", "strangers-leave": "C1", "leave-counts-down": "C1",
	"mixed-up": "C3", "idle-restarts": "C3", "expiry-restarts": "C3", "readers-untold": "C3", "replaces-token": "C3",
	"last-come": "C4", "immortal": "C7", "one-deadline": "C7", "no-lease": "C7", "abandons": "C8", "unsure-leaks": "C8",
}

// TestFlaws: stores that are wrong on purpose are seen to be.
func TestFlaws(t *testing.T) {
	for name, check := range flaws {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sees(t, check, func(*testing.T) sim.Store {
				s := broken.NewStore(name)
				return sim.Store{Open: func() driver.Driver { return broken.New(s) }}
			})
		})
	}
}

// TestSoundStores: the two stores without a flaw, one written apart from the
// other, pass the same schedules.
func TestSoundStores(t *testing.T) {
	for name, open := range planted.Sound() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for i := uint64(1); i <= 200; i++ {
				p := play(t, sim.Plan(i, false), storeOf(open))
				if violations, _ := p.Judge(); len(violations) > 0 {
					t.Fatal(report(p, violations, "TestSchedules"))
				}
			}
		})
	}
}
