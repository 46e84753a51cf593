package holdfast

import (
	"testing"
	"time"
)

// TestF16_ClocksAreReadTogether covers F16. It checks that a process that is
// stopped between two readings of the clocks does not take them for one
// instant.
func TestF16_ClocksAreReadTogether(t *testing.T) {
	const asleep = 4 * time.Millisecond // less than half of ten
	mono := time.Hour
	stops := []time.Duration{0, 30 * time.Millisecond, 0, 0, 7 * time.Millisecond, 0}
	got := sleptBy(func(id uintptr) (time.Duration, bool) {
		mono += time.Microsecond
		if len(stops) > 0 {
			mono, stops = mono+stops[0], stops[1:]
		}
		if id == 7 {
			return mono + asleep, true
		}
		return mono, true
	})
	if got < asleep || got > asleep+50*time.Microsecond {
		t.Errorf("%v slept, want %v", got, asleep)
	}
	if n := sleptBy(func(id uintptr) (time.Duration, bool) { return mono, id != 7 }); n != 0 {
		t.Errorf("%v slept by a clock that is not there", n)
	}
}
