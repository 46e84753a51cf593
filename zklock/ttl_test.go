package zklock

import (
	"testing"
	"time"
)

// TestTTLsFollowFromTheTick checks what the README and guarantees.md say of TTLs: the
// limits printed there follow from the default tickTime of 2 s, and other settings
// have other limits.
func TestTTLsFollowFromTheTick(t *testing.T) {
	for _, c := range []struct{ tick, shortest, longest, wantMin, wantMax time.Duration }{
		{usualTick, usualShortest, usualLongest, 980 * time.Millisecond, 36274 * time.Millisecond},
		{usualTick, usualShortest, 10 * time.Second, 980 * time.Millisecond, 6862 * time.Millisecond},
		{time.Second, 2 * time.Second, 20 * time.Second, 490 * time.Millisecond, 18137 * time.Millisecond},
	} {
		got := traitsOf(c.tick, c.shortest, c.longest)
		if got.MinTTL.Round(time.Millisecond) != c.wantMin || got.MaxTTL.Round(time.Millisecond) != c.wantMax {
			t.Errorf("with ticks of %v and sessions of %v to %v: TTLs from %v to %v, want %v to %v",
				c.tick, c.shortest, c.longest, got.MinTTL, got.MaxTTL, c.wantMin, c.wantMax)
		}
	}
}
