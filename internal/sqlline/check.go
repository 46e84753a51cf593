package sqlline

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// Check is one of those that a [driver.Checker] makes.
type Check func(context.Context) (driver.Finding, error)

// RunChecks makes checks in order, until one fails or finds a problem with one
// of the topics: the rest would fail for this reason.
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

// CheckRoundTrip measures a transaction, which is to be one of [Lines.Touch].
// One that takes longer than slow is worth the advice.
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

// CheckRoundTrip is [CheckRoundTrip] for a database on a server.
func (r *Remote) CheckRoundTrip(ctx context.Context) (driver.Finding, error) {
	return CheckRoundTrip(50*time.Millisecond, "lock from nearer to the server, or with a TTL that leaves time for many of these",
		func() error { return r.Site.Auto(ctx, r.Lines.Touch()) })
}

// CheckClock compares a server's clock with this machine's. Read asks for it,
// in microseconds since 1970.
func CheckClock(read func() (micros int64, err error)) (driver.Finding, error) {
	start := time.Now()
	micros, err := read()
	if err != nil {
		return driver.Finding{}, err
	}
	took := time.Since(start)
	there := time.UnixMicro(micros)
	off := there.Sub(start.Add(took / 2))
	f := driver.Finding{Topic: "clock", Detail: fmt.Sprintf("the server's is %v from this machine's", off.Round(time.Millisecond))}
	switch {
	case there.Before(driver.Epoch):
		f.Level = driver.Warning
		f.Detail += "; it is before " + driver.Epoch.Format(time.DateOnly) + ", so tokens would begin anew if the tables were lost"
		f.Advice = "set the server's clock"
	case off.Abs() > took+time.Minute:
		f.Level = driver.Warning
		f.Detail += "; only the server's counts, but a jump of it when it is set ends locks early or late"
		f.Advice = "have both clocks set by NTP"
	}
	return f, nil
}

// CheckConnections says how many of a server's connections are in use.
func CheckConnections(used, most int64) driver.Finding {
	f := driver.Finding{Topic: "connections", Detail: fmt.Sprintf("%d of %d", used, most)}
	if used*10 > most*9 {
		f.Level = driver.Warning
		f.Advice = "raise max_connections or make pools smaller: who cannot connect cannot renew"
	}
	return f
}

// Pace says how often a client asks that is not told.
func Pace() string {
	return fmt.Sprintf("the first who waits asks every %v, the n-th every n × %v, at most every %v", PaceFirst, PaceFirst, PaceLast)
}
