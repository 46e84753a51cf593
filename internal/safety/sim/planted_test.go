//go:build !race

// The race detector has its turn with TestSchedules; here it would only cost time.

package sim_test

import (
	"context"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/safety/sim"
	"github.com/holdfast-go/holdfast/internal/testkit/broken"
)

// most is the number of schedules that may pass before a bug is found.
const most = 2000

// expectCheckFails plays schedules until the check finds a violation, and
// returns its seed.
func expectCheckFails(t *testing.T, check string, fresh func(*testing.T) sim.Store) {
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

// storeOf returns a function that creates stores of package broken.
func storeOf(make func(cleanup func(func())) broken.Opener) func(*testing.T) sim.Store {
	return func(t *testing.T) sim.Store {
		open := make(t.Cleanup)
		return sim.Store{Open: func() driver.Driver {
			d, err := open(context.Background(), "")
			if err != nil {
				panic(err) // these stores have no errors
			}
			return d
		}}
	}
}

// TestPlantedBugsAreFound checks that the bugs which torture must find in
// seconds of real time are found in fake time too.
func TestPlantedBugsAreFound(t *testing.T) {
	for _, b := range broken.Bugs() {
		t.Run(strings.ReplaceAll(b.Name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			expectCheckFails(t, b.Check, storeOf(b.Open))
		})
	}
}

// flaws are the flaws of package broken that a user of a lock would suffer from
// in the schedules. The other flaws are about matters that schedules do not
// contain: owners, names, broken tickets, and the letter of the driver's
// contract.
var flaws = map[string]string{
	"two-holders": "C1", "leave-is-release": "C1", "first-leaver-frees": "C1", "heads-counted": "C1", "early": "C1",
	"long-lease": "C1", "renews-not": "C1", "echoes": "C1", "renews-late": "C1", "strangers-leave": "C1", "leave-counts-down": "C1",
	"mixed-up": "C3", "idle-restarts": "C3", "expiry-restarts": "C3", "readers-untold": "C3", "replaces-token": "C3",
	"last-come": "C4", "immortal": "C7", "one-deadline": "C7", "no-lease": "C7", "abandons": "C8", "unsure-leaks": "C8",
}

// TestFlawedStoresAreFound checks that stores with planted flaws fail a check.
func TestFlawedStoresAreFound(t *testing.T) {
	for name, check := range flaws {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			expectCheckFails(t, check, func(*testing.T) sim.Store {
				s := broken.NewStore(name)
				return sim.Store{Open: func() driver.Driver { return broken.New(s) }}
			})
		})
	}
}

// TestSoundStoresPassSchedules checks that the two stores without a flaw, which
// were written independently, pass the same schedules.
func TestSoundStoresPassSchedules(t *testing.T) {
	for name, open := range broken.Sound() {
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
