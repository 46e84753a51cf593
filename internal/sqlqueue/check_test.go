package sqlqueue

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// TestChecksWarnFromLimits checks from which figures on the checks warn, and
// after which findings RunChecks stops.
func TestChecksWarnFromLimits(t *testing.T) {
	away := errors.New("away")
	clock := func(off time.Duration) func() (driver.Finding, error) {
		return func() (driver.Finding, error) {
			return CheckClock(func() (int64, error) { return time.Now().Add(off).UnixMicro(), nil })
		}
	}
	trip := func(slow time.Duration, err error) func() (driver.Finding, error) {
		return func() (driver.Finding, error) {
			return CheckRoundTrip(slow, "hurry", func() error { return err })
		}
	}
	for name, c := range map[string]struct {
		check func() (driver.Finding, error)
		level driver.Level
		fails bool
	}{
		"clocks agree":          {clock(0), driver.OK, false},
		"a clock is ahead":      {clock(time.Hour), driver.Warning, false},
		"a clock is behind":     {clock(-time.Hour), driver.Warning, false},
		"a clock is before all": {func() (driver.Finding, error) { return CheckClock(func() (int64, error) { return 0, nil }) }, driver.Warning, false},
		"no clock":              {func() (driver.Finding, error) { return CheckClock(func() (int64, error) { return 0, away }) }, driver.OK, true},
		"quick":                 {trip(time.Hour, nil), driver.OK, false},
		"slow":                  {trip(-1, nil), driver.Warning, false},
		"no answer":             {trip(time.Hour, away), driver.OK, true},
		"90 of 100":             {func() (driver.Finding, error) { return CheckConnections(90, 100), nil }, driver.OK, false},
		"91 of 100":             {func() (driver.Finding, error) { return CheckConnections(91, 100), nil }, driver.Warning, false},
	} {
		f, err := c.check()
		if f.Level != c.level || (f.Advice == "") != (c.level == driver.OK) || errors.Is(err, away) != c.fails {
			t.Errorf("%s: %+v, %v", name, f, err)
		}
	}

	found := func(topic string, level driver.Level, err error) Check {
		return func(context.Context) (driver.Finding, error) {
			return driver.Finding{Topic: topic, Level: level}, err
		}
	}
	for _, c := range []struct {
		last Check
		want []string
		err  error
	}{
		{found("writes", driver.Problem, nil), []string{"a", "writes"}, nil},
		{found("writes", driver.Warning, nil), []string{"a", "writes", "z"}, nil},
		{found("b", driver.Problem, nil), []string{"a", "b", "z"}, nil},
		{found("b", driver.OK, away), nil, away},
	} {
		all, err := RunChecks(t.Context(), []string{"writes"}, found("a", driver.OK, nil), c.last, found("z", driver.OK, nil))
		var topics []string
		for _, f := range all {
			topics = append(topics, f.Topic)
		}
		if !slices.Equal(topics, c.want) || !errors.Is(err, c.err) {
			t.Errorf("%q, %v; want %q, %v", topics, err, c.want, c.err)
		}
	}
}
