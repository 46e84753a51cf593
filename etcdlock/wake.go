package etcdlock

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// A lock needs its watch only to learn of its turn at once. So Join waits only
// for a while for the watch on its session's wake key, and goes on without it.
// Such a ticket is renewed more often. When the watch is confirmed at last, the
// driver reports a gap, and the core renews all waiting tickets once.
const (
	watchTimes            = 8 // in multiples of the time that an answer takes
	watchLeast, watchMost = 500 * time.Millisecond, 2 * time.Second
	// unwatchedTimes is the time between two renewals of a ticket that gets no
	// pushes, in multiples of the time that an answer takes.
	unwatchedTimes                = 20
	unwatchedLeast, unwatchedMost = 250 * time.Millisecond, 5 * time.Second
)

var errNoWatch = errors.New("the server has not confirmed a watch")

// watchAll watches the wake keys of all sessions. It returns an error unless the
// server confirms each watch.
func (ss *sessions) watchAll(ctx context.Context) error {
	for _, s := range ss.list() {
		confirmed, err := s.awaitWatch(ctx)
		if err == nil && !confirmed {
			err = driver.Wrap(driver.Unavailable, ss.watcher.withRefusal(errNoWatch))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// awaitWatch watches the wake key of the session if pushes are wanted, and reports
// whether the server has confirmed the watch: a Join after that misses no
// wake-up.
func (s *session) awaitWatch(ctx context.Context) (confirmed bool, err error) {
	if !s.all.pushes.wanted() {
		return true, nil
	}
	s.all.mu.Lock()
	if s.wake == nil {
		s.wake = s.all.watcher.add(s.all.keys.wake(s.hex), 0, s.onWakeEvent)
	}
	w := s.wake
	s.all.mu.Unlock()
	timer := time.NewTimer(s.all.pace.times(watchTimes, watchLeast, watchMost))
	defer timer.Stop()
	select {
	case <-w.on:
		return true, nil
	case <-timer.C:
		return s.all.watcher.reportLate(w), nil
	case <-ctx.Done():
		return false, &driver.Error{Class: driver.Unavailable, Err: s.all.watcher.withRefusal(context.Cause(ctx))}
	case <-s.all.life.ctx.Done():
		return false, driver.ErrClosed
	}
}

// recheck brings the recheck of a waiting ticket forward if the session gets no
// pushes.
func (s *session) recheck(recheck time.Duration) time.Duration {
	s.all.mu.Lock()
	w := s.wake
	s.all.mu.Unlock()
	if w == nil || s.all.watcher.confirmed(w) {
		return recheck
	}
	soon := s.all.pace.times(unwatchedTimes, unwatchedLeast, unwatchedMost)
	if recheck > 0 {
		return min(recheck, soon)
	}
	return soon
}

// onWakeEvent handles an event of the session's wake key.
func (s *session) onWakeEvent(e event) {
	switch {
	case e.gap:
		// The stream was broken and flows again; afterGap deals with all
		// sessions.
	case e.deleted:
		// The key went with the lease, or somebody deleted it: a keep-alive
		// shows which.
		if !s.owned {
			s.verify()
		}
	default:
		for text := range strings.SplitSeq(e.value, "\n") {
			if m, err := decodeMessage(text); err == nil {
				m.at = e.rev
				s.all.onWake(s, m)
			}
		}
	}
}

// afterGap reports that pushes may have been lost: the core renews all its
// waiting tickets. The driver asks for keep-alives of its sessions, too,
// because it may have missed the end of one.
func (ss *sessions) afterGap() {
	ss.mu.Lock()
	for _, s := range ss.leased {
		if !s.over && s.users > 0 {
			s.sent = s.sent.Add(-s.ttl) // no longer fresh
			s.requestKeepAliveLocked()
		}
	}
	ss.mu.Unlock()
	ss.pushes.push("", driver.Status{})
}
