//go:build unix

package job

import (
	"testing"
	"time"
)

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
