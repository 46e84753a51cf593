package broken_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivertest"
	"github.com/holdfast-go/holdfast/drivertest/broken"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func harness(flaw string) drivertest.Harness {
	s := broken.NewStore(flaw)
	s.StepClock(30 * 365 * 24 * time.Hour) // bubbles begin in 2000, tokens in 2025
	return drivertest.InBubble(drivertest.Harness{
		Open:      func(drivertest.T) driver.Driver { return broken.New(s) },
		TTL:       10 * time.Second,
		Many:      200,
		Pause:     func(drivertest.T) func() { return s.Pause() },
		Restart:   func(drivertest.T) { s.Restart() },
		LoseData:  func(drivertest.T) { s.LoseData() },
		Snapshot:  func(drivertest.T) func() { return s.Snapshot() },
		StepClock: func(_ drivertest.T, d time.Duration) { s.StepClock(d) },
	})
}

// Without a flaw, the naive store passes every case.
func TestNoFlaw(t *testing.T) {
	drivertest.RunBubbles(t, func(drivertest.T) drivertest.Harness { return harness(broken.None) })
}

func fails(t *testing.T, f broken.Flaw, c drivertest.Case) (failures []string) {
	synctest.Test(t, func(t *testing.T) {
		failures = drivertest.Record(t.Name(), func(t drivertest.T) {
			drivertest.RunCase(t, harness(f.Name), c)
		})
		time.Sleep(2 * time.Hour) // for what was left behind to end
	})
	return failures
}

// Every flaw is seen by the case that is there for it.
func TestFlaws(t *testing.T) {
	cases := make(map[string]drivertest.Case)
	for _, c := range drivertest.Cases() {
		cases[c.Name] = c
	}
	for _, f := range broken.Flaws() {
		t.Run(f.Name, func(t *testing.T) {
			c, ok := cases[f.Fails]
			if !ok {
				t.Fatalf("there is no case %q", f.Fails)
			}
			// What a hammer sees depends on who comes when: it may need a few
			// blows.
			blows := 1
			if strings.HasPrefix(c.Name, "hammer") {
				blows = 20
			}
			for range blows {
				if failures := fails(t, f, c); len(failures) > 0 {
					t.Logf("%s: %.200s", f.Fails, strings.Join(failures, "; "))
					return
				}
			}
			t.Errorf("a driver that %s passes %s", f.Does, f.Fails)
		})
	}
}

// Every case is failed by some flaw: one that nobody fails may check nothing.
func TestEveryCaseBites(t *testing.T) {
	bitten := make(map[string]bool)
	for _, f := range broken.Flaws() {
		bitten[f.Fails] = true
	}
	for _, c := range drivertest.Cases() {
		if !bitten[c.Name] {
			t.Errorf("no flaw fails %s", c.Name)
		}
	}
}
