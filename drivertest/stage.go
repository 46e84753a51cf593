package drivertest

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// stage is the store of one case, and how long things take there.
type stage struct {
	T
	h      Harness
	traits driver.Traits
	tag    string // begins every name of this case
	still  *standstills
}

// limit returns a context for one call.
func (s *stage) limit() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), s.maxWait())
}

// name returns a name of this case.
func (s *stage) name(of string) string { return s.tag + of }

// pollInterval is the time between two requests while a case waits for the
// store's time.
func (s *stage) pollInterval() time.Duration {
	return min(max(s.h.TTL/50, time.Millisecond), 50*time.Millisecond)
}

// longTTL is the TTL of tickets that must not expire, however slow the machine.
func (s *stage) longTTL() time.Duration {
	return min(max(2*time.Minute, 4*s.h.TTL), s.traits.MaxTTL)
}

// calmTTL is a TTL at which no worker on a slow machine loses its place.
func (s *stage) calmTTL() time.Duration { return max(s.h.TTL, min(6*time.Second, s.traits.MaxTTL)) }

// latestExpiry is the longest time for which the store may keep a ticket of this
// TTL.
func (s *stage) latestExpiry(ttl time.Duration) time.Duration {
	return ttl + ttl/20 + s.traits.Granularity + s.h.Slack
}

// maxWait bounds each wait for an event that has to happen. A correct driver
// never reaches it, however slow the machine.
func (s *stage) maxWait() time.Duration { return 30*time.Second + 4*s.latestExpiry(s.h.TTL) }

// settle gives an event that must not happen the time to happen.
func (s *stage) settle() { time.Sleep(max(5*s.pollInterval(), 20*time.Millisecond)) }

// until waits for a condition.
func (s *stage) until(what string, cond func() bool) {
	s.Helper()
	for start := time.Now(); !cond(); {
		if time.Since(start) > s.maxWait() {
			s.Fatalf("after %v: still not: %s", s.maxWait(), what)
		}
		time.Sleep(s.pollInterval())
	}
}

// awaitView waits until Inspect and Names show what was answered, where they may be
// late. The caller then checks what they show, so awaitView does not fail.
func (s *stage) awaitView(shown func() bool) {
	s.Helper()
	for start := time.Now(); s.h.LateViews && time.Since(start) < s.maxWait() && !shown(); {
		time.Sleep(s.pollInterval())
	}
}

// checkPrompt checks that f returns within 50 ms, plus an allowance for a slow
// machine.
func (s *stage) checkPrompt(what string, f func()) {
	s.Helper()
	const allowed = 50 * time.Millisecond
	start := time.Now()
	f()
	if took := time.Since(start); s.still.exceed(took, allowed+s.h.Slack, start) {
		s.Errorf("%s took %v after its context had ended, at most %v is allowed", what, took, allowed)
	}
}

// retryWatch calls Watch, again after a time-out, as the core does: on a busy machine
// the connection may take longer than one attempt.
func (s *stage) retryWatch(watch func() error) {
	s.Helper()
	for start := time.Now(); ; time.Sleep(s.pollInterval()) {
		err := watch()
		if err == nil {
			return
		}
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(start) > s.maxWait() {
			s.Fatalf("Watch: %v", err)
		}
	}
}
