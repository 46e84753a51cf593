package drivertest_test

import (
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivertest"
)

// TestHistoryCheckFindsViolations checks histories with and without violations.
func TestHistoryCheckFindsViolations(t *testing.T) {
	type hold = drivertest.Hold
	for name, c := range map[string]struct {
		limit int64
		holds []hold
		want  string
	}{
		"turns":              {1, []hold{{"a", 1, 1, 0, 0, 10}, {"b", 1, 2, 0, 10, 20}, {"c", 1, 3, 30, 31, 40}}, ""},
		"both at once":       {1, []hold{{"a", 1, 1, 0, 0, 10}, {"b", 1, 2, 0, 9, 20}}, "2 units of 1"},
		"one within another": {1, []hold{{"a", 1, 1, 0, 0, 10}, {"b", 1, 2, 0, 2, 3}}, "2 units of 1"},
		"readers":            {driver.RWLimit, []hold{{"a", 1, 1, 0, 0, 10}, {"b", 1, 2, 0, 5, 20}, {"w", driver.RWLimit, 3, 0, 20, 30}}, ""},
		"writer with reader": {driver.RWLimit, []hold{{"a", 1, 1, 0, 0, 10}, {"w", driver.RWLimit, 3, 0, 9, 30}}, "are held at once"},
		"units":              {5, []hold{{"a", 3, 1, 0, 0, 10}, {"b", 2, 2, 0, 0, 10}, {"c", 5, 3, 0, 10, 12}}, ""},
		"too many units":     {5, []hold{{"a", 3, 1, 0, 0, 10}, {"b", 3, 2, 0, 9, 20}}, "6 units of 5"},
		"token twice":        {5, []hold{{"a", 1, 7, 0, 0, 10}, {"b", 1, 7, 0, 1, 10}}, "have token 7"},
		"token goes back":    {1, []hold{{"a", 1, 8, 0, 0, 10}, {"b", 1, 7, 11, 12, 20}}, "asked after a had 8"},
		"shared goes back":   {5, []hold{{"a", 1, 8, 0, 0, 10}, {"b", 1, 7, 1, 2, 20}}, "asked after a had 8"},
		"asked before":       {5, []hold{{"a", 1, 8, 0, 5, 10}, {"b", 1, 7, 1, 6, 20}}, ""},
		"waiters' tokens":    {1, []hold{{"a", 1, 8, 0, 5, 10}, {"b", 1, 7, 0, 11, 20}}, "holds after a with 8"},
		"claim was over":     {1, []hold{{"a", 1, 1, 0, 5, 4}, {"b", 1, 2, 0, 1, 20}}, ""},
	} {
		failures := strings.Join(drivertest.Record(name, func(t drivertest.T) { drivertest.CheckHistory(t, c.limit, c.holds) }), "; ")
		if c.want == "" && failures != "" || !strings.Contains(failures, c.want) {
			t.Errorf("%s: %q, want %q", name, failures, c.want)
		}
	}
}
