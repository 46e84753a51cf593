package holdfast_test

import (
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
)

// TestSlotStartsAtWholePeriods checks that a slot starts where Time.Truncate says,
// in UTC, whatever the time's zone, and that early timers count for the next one.
func TestSlotStartsAtWholePeriods(t *testing.T) {
	zone := time.FixedZone("somewhere", -5*3600-1800)
	at := func(s string) time.Time {
		u, err := time.Parse(time.RFC3339Nano, s)
		if err != nil {
			t.Fatal(err)
		}
		return u
	}
	const day = 24 * time.Hour
	for _, c := range []struct {
		t     string
		every time.Duration
		want  string
	}{
		{"2026-11-23T12:00:00Z", time.Hour, "2026-11-23T12:00:00Z"},
		{"2026-11-23T12:59:49.999999999Z", time.Hour, "2026-11-23T12:00:00Z"},
		{"2026-11-23T12:59:50Z", time.Hour, "2026-11-23T13:00:00Z"}, // 10 s early
		{"2026-11-23T23:59:50Z", day, "2026-11-24T00:00:00Z"},
		{"2026-11-23T12:00:56.9Z", time.Minute, "2026-11-23T12:00:00Z"},
		{"2026-11-23T12:00:57Z", time.Minute, "2026-11-23T12:01:00Z"}, // a twentieth early
		{"2026-11-29T23:59:49Z", 7 * day, "2026-11-23T00:00:00Z"},     // a Sunday, and the Monday before
		{"2026-11-23T12:00:00.5Z", time.Nanosecond, "2026-11-23T12:00:00.5Z"},
		{"2026-11-23T12:00:00.5Z", 0, "2026-11-23T12:00:00.5Z"},
		{"2026-11-23T12:00:00.5Z", -time.Hour, "2026-11-23T12:00:00.5Z"},
	} {
		got := holdfast.Slot(at(c.t).In(zone), c.every)
		if !got.Equal(at(c.want)) || got.Location() != time.UTC {
			t.Errorf("Slot(%s, %v) is %v, want %s", c.t, c.every, got, c.want)
		}
	}
	now := time.Now()
	if a, b := holdfast.Slot(now, time.Hour), holdfast.Slot(now.Round(0), time.Hour); a != b {
		t.Errorf("Slot of a time with a monotonic part is %#v, want %#v", a, b)
	}
}
