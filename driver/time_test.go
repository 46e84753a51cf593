package driver_test

import (
	"math"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

func TestKeep(t *testing.T) {
	for _, ttl := range []time.Duration{time.Millisecond, 10 * time.Millisecond, time.Second, 30 * time.Second, 10 * 365 * 24 * time.Hour} {
		if grace := driver.Keep(ttl) - ttl; grace <= 0 || grace > ttl/25 {
			t.Errorf("TTL %v has a grace of %v", ttl, grace)
		}
	}
}

// TestNextToken checks that tokens grow whatever the store's clock and counter do.
//
// Covers: F19, F20, F26, F27, F39.
func TestNextToken(t *testing.T) {
	at := func(d time.Duration) time.Time { return driver.Epoch.Add(d) }
	for _, c := range []struct {
		last, floor uint64
		now         time.Time
		want        uint64
	}{
		{0, 0, at(0), 1},
		{0, 0, at(-time.Hour), 1},
		{0, 0, time.Time{}, 1},
		{7, 0, at(0), 8},
		{0, 0, at(time.Second), 40_000},
		{39_999, 0, at(time.Second), 40_000},
		{40_000, 0, at(time.Second), 40_001},
		{90_000, 0, at(time.Second), 90_001},
		{90_000, 90_001, at(time.Second), 90_001},
		{90_000, 90_002, at(time.Second), 90_002},
		{0, 90_000, at(time.Second), 90_000},
		{0, 3, at(time.Second), 40_000},
		{0, 0, at(driver.TokenTick), 1},
		{0, 0, at(3*driver.TokenTick - 1), 2},
	} {
		if got := driver.NextToken(c.last, c.floor, c.now); got != c.want {
			t.Errorf("NextToken(%d, %d, %v) is %d, want %d", c.last, c.floor, c.now, got, c.want)
		}
	}
}

// TestF38_TokensFitADouble checks that tokens times 256 are exact in a double
// until 2052.
func TestF38_TokensFitADouble(t *testing.T) {
	const exact = 1 << 53
	if token := driver.NextToken(0, 0, time.Date(2052, 1, 1, 0, 0, 0, 0, time.UTC)); token*256 > exact {
		t.Errorf("token %d times 256 is above %d", token, exact)
	}
	if driver.EpochMicro != driver.Epoch.UnixMicro() {
		t.Errorf("EpochMicro is %d, want %d", driver.EpochMicro, driver.Epoch.UnixMicro())
	}
}

func FuzzNextToken(f *testing.F) {
	f.Add(uint64(0), uint64(0), int64(0))
	f.Add(uint64(1<<40), uint64(1<<41), driver.Epoch.Unix())
	f.Fuzz(func(t *testing.T, last, floor uint64, now int64) {
		if last == math.MaxUint64 {
			return
		}
		got := driver.NextToken(last, floor, time.Unix(now%(1<<40), 0))
		if got <= last || got < floor {
			t.Errorf("NextToken(%d, %d, %d) is %d", last, floor, now, got)
		}
	})
}
