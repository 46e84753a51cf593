package backoff_test

import (
	"context"
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/internal/backoff"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Example shows the pauses of five attempts in vain.
func Example() {
	retry := backoff.Backoff{First: 20 * time.Millisecond, Last: 100 * time.Millisecond}
	for range 5 {
		fmt.Print(retry.Next(), " ")
	}
	retry.Reset()
	fmt.Println(retry.Next())
	// Output: 20ms 40ms 80ms 100ms 100ms 20ms
}

// TestPausesStayWithinTheirBound checks pauses by number, with and without a
// bound.
func TestPausesStayWithinTheirBound(t *testing.T) {
	const ms = time.Millisecond
	for _, test := range []struct {
		b    backoff.Backoff
		n    int
		want time.Duration
	}{
		{backoff.Backoff{First: ms, Last: 1024 * ms, Factor: 4}, 0, ms},
		{backoff.Backoff{First: ms, Last: 1024 * ms, Factor: 4}, 5, 1024 * ms},
		{backoff.Backoff{First: ms, Last: 1024 * ms, Factor: 4}, math.MaxInt, 1024 * ms},
		{backoff.Backoff{First: ms, Last: 500 * ms, Factor: 4}, 4, 256 * ms},
		{backoff.Backoff{First: ms, Last: 500 * ms, Factor: 4}, 5, 500 * ms},
		{backoff.Backoff{First: 5 * ms, Last: 2 * ms}, 0, 2 * ms},
		{backoff.Backoff{First: 250 * ms}, 3, 2 * time.Second},
		{backoff.Backoff{First: 250 * ms}, 1000, math.MaxInt64},
	} {
		if got := test.b.Pause(test.n); got != test.want {
			t.Errorf("%+v after %d: %v, want %v", test.b, test.n, got, test.want)
		}
	}
}

// TestJitterKeepsHalfOfThePause checks the bounds of random pauses.
func TestJitterKeepsHalfOfThePause(t *testing.T) {
	b := backoff.Backoff{First: time.Second, Last: time.Second, Jitter: true}
	for range 1000 {
		if got := b.Next(); got < time.Second/2 || got >= time.Second {
			t.Fatalf("a pause of %v", got)
		}
	}
	least := backoff.Backoff{First: 1, Last: 1, Jitter: true}
	if got := least.Next(); got != 1 {
		t.Errorf("a pause of %v, want 1ns", got)
	}
}

// TestWaitEndsWithItsContext checks that Wait lasts for the pause, and no longer
// than its context.
func TestWaitEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := backoff.Backoff{First: time.Second}
		begun := time.Now()
		if !b.Wait(t.Context()) || time.Since(begun) != time.Second {
			t.Errorf("the first pause was %v", time.Since(begun))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if b.Wait(ctx) || time.Since(begun) != 2*time.Second {
			t.Errorf("both pauses took %v", time.Since(begun))
		}
	})
}
