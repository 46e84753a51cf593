//go:build unix

package job

import (
	"testing"
	"time"
)

// TestGuardActsLater checks that the guard acts after this process does, and with a
// longest duration by a margin that a busy machine keeps, however short that is.
func TestGuardActsLater(t *testing.T) {
	const grace, lease = 10 * time.Second, 40 * time.Second
	for _, longest := range []time.Duration{0, time.Nanosecond, time.Millisecond, 100 * time.Millisecond, time.Second, 20 * time.Second, time.Hour} {
		l := newLimits(grace, longest)
		deadline := l.start.Add(lease)
		term, kill := l.guardTimes(deadline)
		end, g := l.end(deadline)
		late := 100 * time.Millisecond
		if longest == 0 || longest > lease {
			late = time.Millisecond
		}
		if own := end.Add(-g); term.Sub(own) < late {
			t.Errorf("--max-hold %v: told to stop %v after this process tells it", longest, term.Sub(own))
		}
		if own := l.killAt(deadline); kill.Sub(own) < late {
			t.Errorf("--max-hold %v: killed %v after this process kills it", longest, kill.Sub(own))
		}
		if kill.After(deadline) {
			t.Errorf("--max-hold %v: killed after the deadline", longest)
		}
	}
}

// TestLimitsEnd checks that the end whose SIGTERM is due first counts: that is not
// always the end that comes first, as each has a grace of its own.
func TestLimitsEnd(t *testing.T) {
	const grace = 10 * time.Second
	for _, c := range []struct{ longest, lease, end, grace time.Duration }{
		{0, 40 * time.Second, 40 * time.Second, grace},
		{20 * time.Second, 40 * time.Second, 20 * time.Second, 4 * time.Second},
		{39 * time.Second, 40 * time.Second, 40 * time.Second, grace}, // 31.2 s and 30 s
		{80 * time.Second, 40 * time.Second, 40 * time.Second, grace},
	} {
		l := newLimits(grace, c.longest)
		end, g := l.end(l.start.Add(c.lease))
		if got := end.Sub(l.start); got != c.end || g != c.grace {
			t.Errorf("--max-hold %v, lease %v: end %v, grace %v; want %v, %v", c.longest, c.lease, got, g, c.end, c.grace)
		}
	}
}
