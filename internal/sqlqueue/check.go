package sqlqueue

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// Check is one examination of a [driver.Checker].
type Check func(context.Context) (driver.Finding, error)

// RunChecks runs checks in order. It stops after an error, and after a problem
// with one of the topics: the other checks would fail for the same reason.
func RunChecks(ctx context.Context, topics []string, checks ...Check) ([]driver.Finding, error) {
	var out []driver.Finding
	for _, check := range checks {
		f, err := check(ctx)
		if err != nil {
			return nil, err
		}
		out = append(out, f)
		if f.Level == driver.Problem && slices.Contains(topics, f.Topic) {
			break
		}
	}
	return out, nil
}

// CheckRoundTrip measures a transaction, which should run [Queues.Touch]. A
// transaction slower than slow yields a warning with this advice.
func CheckRoundTrip(slow time.Duration, advice string, transact func() error) (driver.Finding, error) {
	const times = 5
	best := time.Duration(1 << 62)
	for range times {
		start := time.Now()
		if err := transact(); err != nil {
			return driver.Finding{}, err
		}
		best = min(best, time.Since(start))
	}
	f := driver.Finding{Topic: "round trip", Detail: fmt.Sprintf("%v for one transaction, the best of %d", best.Round(time.Microsecond), times)}
	if best > slow {
		f.Level = driver.Warning
		f.Advice = advice
	}
	return f, nil
}

// CheckRoundTrip calls [CheckRoundTrip] for a database on a server.
func (s *Tables) CheckRoundTrip(ctx context.Context) (driver.Finding, error) {
	return CheckRoundTrip(50*time.Millisecond, "lock from nearer to the server, or with a TTL that leaves time for many of these",
		func() error { return s.Database.Auto(ctx, s.Queues.Touch()) })
}

// CheckClock compares a server's clock with this machine's. Read returns the
// server's time in microseconds since 1970.
func CheckClock(read func() (micros int64, err error)) (driver.Finding, error) {
	start := time.Now()
	micros, err := read()
	if err != nil {
		return driver.Finding{}, err
	}
	took := time.Since(start)
	there := time.UnixMicro(micros)
	off := there.Sub(start.Add(took / 2))
	f := driver.Finding{Topic: "clock", Detail: fmt.Sprintf("the server's clock differs by %v from this machine's", off.Round(time.Millisecond))}
	switch {
	case there.Before(driver.Epoch):
		f.Level = driver.Warning
		f.Detail += "; it is before " + driver.Epoch.Format(time.DateOnly) + ", so tokens would begin anew if the tables were lost"
		f.Advice = "set the server's clock"
	case off.Abs() > took+time.Minute:
		f.Level = driver.Warning
		f.Detail += "; only the server's clock counts, but a jump when it is set makes leases end early or late"
		f.Advice = "have both clocks set by NTP"
	}
	return f, nil
}

// CheckConnections reports how many of a server's connections are in use.
func CheckConnections(used, limit int64) driver.Finding {
	f := driver.Finding{Topic: "connections", Detail: fmt.Sprintf("%d of %d", used, limit)}
	if used*10 > limit*9 {
		f.Level = driver.Warning
		f.Advice = "raise max_connections or make pools smaller: a client that cannot connect cannot renew"
	}
	return f
}

// Pace describes how often a client without pushes rechecks.
func Pace() string {
	return fmt.Sprintf("the first waiter polls every %v, the n-th every n × %v, up to every %v", PaceFirst, PaceFirst, PaceLast)
}

// CheckMarks reads a mark that nobody sets, which creates the table of marks where
// it is missing, and then examines the rights to set one.
func CheckMarks(ctx context.Context, m driver.Marker, maySet func() error) (driver.Finding, error) {
	f := driver.Finding{Topic: "marks", Detail: "this user may read and set the marks of Once"}
	_, err := m.Mark(ctx, "holdfast/check")
	if err == nil {
		err = maySet()
	}
	if err == nil || driver.ClassOf(err) != driver.Refused {
		return f, err
	}
	f.Level = driver.Problem
	f.Detail = "Once is refused: " + err.Error()
	f.Advice = "GRANT SELECT, INSERT, UPDATE on the table of marks; if it is missing, ask an administrator to run the output of `holdfast schema`"
	return f, nil
}
