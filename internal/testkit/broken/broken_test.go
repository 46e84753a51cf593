package broken_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivertest"
	"github.com/holdfast-go/holdfast/internal/testkit/broken"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func harness(flaw string) drivertest.Harness {
	s := broken.NewStore(flaw)
	s.StepClock(30 * 365 * 24 * time.Hour) // bubbles begin in 2000, tokens in 2025
	return drivertest.InBubble(drivertest.Harness{
		TellsLeft:  true,
		Open:       func(drivertest.T) driver.Driver { return broken.New(s) },
		FailPushes: func(drivertest.T) func() { return s.FailPushes() },
		OpenAt: func(ctx context.Context, address string) (driver.Driver, error) {
			return broken.OpenAt(ctx, s, address)
		},
		TTL:      10 * time.Second,
		Waiters:  200,
		Pause:    func(drivertest.T) func() { return s.Pause() },
		Restart:  func(drivertest.T) { s.Restart() },
		LoseData: func(drivertest.T) { s.LoseData() },
		Snapshot: func(drivertest.T) func() { return s.Snapshot() },
		Foreign: []drivertest.Foreign{{
			Name: "a value", ErrorNames: "foreign value",
			Put: func(_ drivertest.T, name string) func() { return s.PutForeign(name) },
		}},
		Elsewhere: []drivertest.Elsewhere{{
			How:  "by another way",
			Open: func(drivertest.T) (driver.Driver, error) { return broken.OpenElsewhere(s), nil },
		}},
		StepClock: func(_ drivertest.T, d time.Duration) { s.StepClock(d) },
		LockRow:   func(drivertest.T, string) func() { return s.LockRow() },
		Rows:      func(drivertest.T) int { return s.Rows() },
		Rights: &drivertest.Rights{
			Needed: broken.Rights(),
			User: func(_ drivertest.T, without ...string) drivertest.User {
				u := s.User(without...)
				return drivertest.User{
					Open:   func(drivertest.T) (driver.Driver, error) { return u.Open(), nil },
					Revoke: func(_ drivertest.T, right string) { u.Withdraw(right) },
				}
			},
		},
	})
}

// TestSoundStorePassesEveryCase checks that the naive store without a flaw
// passes every case.
func TestSoundStorePassesEveryCase(t *testing.T) {
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

// TestEachFlawFailsItsCase checks that each flaw fails the case that exists for
// it.
func TestEachFlawFailsItsCase(t *testing.T) {
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
			// A concurrent case depends on the order of events: it may need a few
			// runs.
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

// TestEveryCaseFailsForSomeFlaw checks that each case fails for some flaw: a
// case that no flaw fails may check nothing.
func TestEveryCaseFailsForSomeFlaw(t *testing.T) {
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
