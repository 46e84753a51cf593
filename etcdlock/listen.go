package etcdlock

import (
	"context"
	"errors"
	"fmt"
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

// awaitWatch watches the wake key of a session if pushes are wanted, and reports
// whether the server has confirmed the watch: a Join after that misses no
// wake-up.
func (d *Driver) awaitWatch(ctx context.Context, s *session) (confirmed bool, err error) {
	d.mu.Lock()
	if !d.pushes.wanted() {
		d.mu.Unlock()
		return true, nil
	}
	if s.wake == nil {
		s.wake = d.watcher.add(d.keys.wake(s.hex), 0, func(e event) { d.onWakeEvent(s, e) })
	}
	w := s.wake
	d.mu.Unlock()
	timer := time.NewTimer(d.pace.times(watchTimes, watchLeast, watchMost))
	defer timer.Stop()
	select {
	case <-w.on:
		return true, nil
	case <-timer.C:
		return d.watcher.reportLate(w), nil
	case <-ctx.Done():
		return false, &driver.Error{Class: driver.Unavailable, Err: d.withRefusal(context.Cause(ctx))}
	case <-d.life.ctx.Done():
		return false, driver.ErrClosed
	}
}

// reportLate reports whether a watch is confirmed. If it is not, its confirmation
// will report a gap, because callers go on without it.
func (w *watcher) reportLate(x *watch) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	x.late = !x.ack
	return x.ack
}

// confirmed reports whether a watch is confirmed and its stream open.
func (w *watcher) confirmed(x *watch) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.up && x.ack
}

// recheckUnwatched brings the recheck of a waiting ticket forward if its session
// gets no pushes.
func (d *Driver) recheckUnwatched(s *session, recheck time.Duration) time.Duration {
	d.mu.Lock()
	w := s.wake
	d.mu.Unlock()
	if w == nil || d.watcher.confirmed(w) {
		return recheck
	}
	soon := d.pace.times(unwatchedTimes, unwatchedLeast, unwatchedMost)
	if recheck > 0 {
		return min(recheck, soon)
	}
	return soon
}

// withRefusal adds the server's last reason against a watch to an error.
func (d *Driver) withRefusal(err error) error {
	if why := d.watcher.lastRefusal(); why != "" {
		return fmt.Errorf("the server refuses a watch: %s: %w", why, err)
	}
	return err
}
