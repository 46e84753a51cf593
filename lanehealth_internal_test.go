package holdfast

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memlock"
)

// TestF106_OwnStarvationIsNoSilence checks that half of a Lock's retry budget
// is left until a probe has gone out: a process that gets no processor sends no
// probe, and a store that receives no request is not silent.
func TestF106_OwnStarvationIsNoSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := New(memlock.New(memlock.NewStore()))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		lh := &c.lanes.only
		const patience = time.Second
		lh.requestSent()
		expect := func(want time.Duration) {
			t.Helper()
			if got := lh.silenceWithin(patience); got != want {
				t.Errorf("silence %v, want %v", got, want)
			}
		}
		time.Sleep(patience / 4)
		expect(patience / 4)
		time.Sleep(10 * patience)
		expect(patience / 2)
		lh.mu.Lock()
		lh.firstProbe = c.clock.now()
		lh.mu.Unlock()
		time.Sleep(patience / 4)
		expect(patience * 3 / 4)
		time.Sleep(patience)
		expect(patience * 7 / 4)
		lh.requestEnded(t.Context(), requestJoin, c.clock.now(), nil)
		lh.requestSent()
		time.Sleep(2 * patience)
		expect(patience / 2)
	})
}

// TestSilenceErrorSaysItsClassOnce checks the error of a Lock that ends since the store is
// silent: its class comes once, and then the last error of the store.
func TestSilenceErrorSaysItsClassOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newCell(t, false, false)
		refused := errors.New("connection refused")
		lh := x.q.laneHealth
		lh.lastErr = driver.Wrap(driver.Unavailable, refused)
		for class, want := range map[driver.Class]string{
			driver.Unavailable: "store unavailable: the store has not answered for 0s: connection refused",
			driver.Unknown:     "outcome unknown: the store has not answered for 0s: store unavailable: connection refused",
		} {
			err := lh.silenceError(class)
			if err.Error() != want || !errors.Is(err, refused) || driver.ClassOf(err) != class {
				t.Errorf("%v, want %s", err, want)
			}
		}
		x.c.calls.Done()
		if err := x.c.Close(); err != nil {
			t.Error(err)
		}
	})
}
