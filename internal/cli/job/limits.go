//go:build unix

package job

import "time"

// limits derives the instants of action from a deadline. Times carry Go's
// monotonic clock, so that steps of the wall clock change nothing.
type limits struct {
	grace  time.Duration // from SIGTERM to the deadline
	margin time.Duration // from SIGKILL to the deadline
	maxDuration,
	longGrace time.Duration
	start time.Time
}

// checkInterval is the longest time between two calls of Deadline.
const checkInterval = time.Second

func newLimits(grace, maxDuration time.Duration) limits {
	return limits{
		grace: grace, margin: marginOf(grace),
		maxDuration: maxDuration, longGrace: min(grace, maxDuration/5),
		start: time.Now(),
	}
}

// marginOf returns the time that the death of a killed group may take.
func marginOf(grace time.Duration) time.Duration { return min(grace/5, time.Second) }

// decide returns why the command has to stop, if it has to, and the time until
// the next decision.
func (l *limits) decide(now, deadline time.Time, over bool) (Reason, time.Duration) {
	if over {
		return Expired, checkInterval
	}
	next := deadline.Add(-l.grace).Sub(now)
	if next <= 0 {
		return InDoubt, checkInterval
	}
	if l.maxDuration > 0 {
		left := l.start.Add(l.maxDuration - l.longGrace).Sub(now)
		if left <= 0 {
			return MaxDuration, checkInterval
		}
		next = min(next, left)
	}
	// More often than the deadline alone needs: the guard has to learn of a
	// deadline that has moved on well before it acts on the old one.
	return "", min(next, max(l.grace/4, time.Millisecond), checkInterval)
}

// end returns the end of the command's time for which SIGTERM is due first, by
// the deadline or by the longest duration, and the time from SIGTERM to that end.
func (l *limits) end(deadline time.Time) (end time.Time, grace time.Duration) {
	longest := l.start.Add(l.maxDuration)
	if l.maxDuration > 0 && longest.Add(-l.longGrace).Before(deadline.Add(-l.grace)) {
		return longest, l.longGrace
	}
	return deadline, l.grace
}

// killAt returns the instant at which a command is killed after SIGTERM.
func (l *limits) killAt(deadline time.Time) time.Time {
	at := deadline.Add(-l.margin)
	if l.maxDuration > 0 {
		if end := l.start.Add(l.maxDuration - marginOf(l.longGrace)); end.Before(at) {
			at = end
		}
	}
	return at
}

// guardDelay bounds from below how much later than this process the guard acts on a
// longest duration: a busy machine delays this process too. No lock depends on it.
const guardDelay = 100 * time.Millisecond

// guardTimes returns the instants of the guard: late enough that it acts only if
// this process does not.
func (l *limits) guardTimes(deadline time.Time) (term, kill time.Time) {
	term = deadline.Add(-l.grace * 3 / 4)
	kill = deadline.Add(-l.margin / 2)
	if l.maxDuration > 0 {
		end := l.start.Add(l.maxDuration)
		if t := end.Add(max(l.longGrace/4, guardDelay) - l.longGrace); t.Before(term) {
			term = t
		}
		margin := marginOf(l.longGrace)
		if t := end.Add(max(margin/2, guardDelay) - margin); t.Before(kill) {
			kill = t
		}
	}
	return term, kill
}
