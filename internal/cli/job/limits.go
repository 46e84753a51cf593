//go:build unix

package job

import "time"

// limits turns a deadline into the instants at which to act. Times carry Go's
// monotonic clock, so that steps of the wall clock change nothing.
type limits struct {
	grace  time.Duration // SIGTERM so long before the deadline
	margin time.Duration // SIGKILL so long before it
	longest,
	longGrace time.Duration
	start time.Time
}

// pulse is how often at least the deadline is asked for.
const pulse = time.Second

func newLimits(grace, longest time.Duration) limits {
	return limits{
		grace: grace, margin: marginOf(grace),
		longest: longest, longGrace: min(grace, longest/5),
		start: time.Now(),
	}
}

// marginOf is the time that the death of a killed group may take.
func marginOf(grace time.Duration) time.Duration { return min(grace/5, time.Second) }

// look says whether the command has to stop, and else when to look again.
func (l *limits) look(now, deadline time.Time, over bool) (Reason, time.Duration) {
	if over {
		return Over, pulse
	}
	next := deadline.Add(-l.grace).Sub(now)
	if next <= 0 {
		return Doubt, pulse
	}
	if l.longest > 0 {
		left := l.start.Add(l.longest - l.longGrace).Sub(now)
		if left <= 0 {
			return Longest, pulse
		}
		next = min(next, left)
	}
	// Not only when the time has come: the guard is to hear of a deadline that
	// has moved on well before it would act on the old one.
	return "", min(next, max(l.grace/4, time.Millisecond), pulse)
}

// killAt is when a command that was told to stop is killed.
func (l *limits) killAt(deadline time.Time) time.Time {
	at := deadline.Add(-l.margin)
	if l.longest > 0 {
		if end := l.start.Add(l.longest - marginOf(l.longGrace)); end.Before(at) {
			at = end
		}
	}
	return at
}

// ofGuard are the instants of the guard: the same, but later by so much that it
// acts only if this process does not.
func (l *limits) ofGuard(deadline time.Time) (term, kill time.Time) {
	term = deadline.Add(-l.grace * 3 / 4)
	kill = deadline.Add(-l.margin / 2)
	if l.longest > 0 {
		end := l.start.Add(l.longest)
		if t := end.Add(-l.longGrace * 3 / 4); t.Before(term) {
			term = t
		}
		if t := end.Add(-marginOf(l.longGrace) / 2); t.Before(kill) {
			kill = t
		}
	}
	return term, kill
}
