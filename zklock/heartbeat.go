package zklock

import (
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// The leader decides how long a session lives, and a member tells the leader
// only twice a tick which sessions have contacted it. So a member's answer
// alone proves nothing: a member that is cut off together with its client
// answers pings for up to syncLimit ticks, while the leader lets the session
// expire. The driver counts a session's time from when a request was sent, but
// only once a later sync confirms that request. The member has to pass a sync
// on to the leader. A sync confirms a request if it was sent more than half a
// tick after the request's answer, was answered, and used the same connection:
// a member's messages reach the leader in order.
//
// A heartbeat is such a sync, four times a tick. It confirms the heartbeats before it, so
// that the promise is never much older than a tick. The time-out that the
// driver asks for has room for that.

// slack returns the time by which a session's time-out exceeds the TTL of its
// tickets, besides 2 %.
func slack(tick time.Duration) time.Duration { return tick * 3 / 2 }

// maxOverrun returns how much longer than promised the server may keep a session: the
// slack of the time-out, up to a tick because it checks sessions once a tick,
// and half a tick because the member reports twice a tick.
func maxOverrun(tick time.Duration) time.Duration { return slack(tick) + tick*3/2 }

// timeoutFor returns the time-out of the session for tickets of a TTL.
func timeoutFor(ttl, tick time.Duration) time.Duration {
	return (ttl + ttl/50 + slack(tick) + time.Millisecond - 1).Truncate(time.Millisecond)
}

// ttlFor returns the longest TTL for a time-out.
func ttlFor(timeout, tick time.Duration) time.Duration {
	return ((timeout - slack(tick)) * 50 / 51).Truncate(time.Millisecond)
}

func (s *session) heartbeat() {
	tick := s.d.tick
	ticker := time.NewTicker(max(tick/4, 5*time.Millisecond))
	defer ticker.Stop()
	sweeping := make(chan struct{}, 1)
	for {
		select {
		case <-s.stop:
			return
		case <-ticker.C:
		}
		if s.up() {
			_ = s.sync() // an answer renews the promise; an error does not
		}
		select {
		case sweeping <- struct{}{}:
			s.done.Go(func() {
				s.sweep()
				<-sweeping
			})
		default: // the last sweep is still running
		}
	}
}

// sync asks the leader for an answer. Once it returns, event has handled all
// events that happened before the sync was sent.
func (s *session) sync() error {
	s.mu.Lock()
	t := answeredSync{sent: time.Now(), epoch: s.epoch}
	s.mu.Unlock()
	_, err := s.conn.Sync(s.d.syncPath())
	t.answered = time.Now()
	s.mu.Lock()
	took := t.answered.Sub(t.sent)
	s.syncTime = max(took, s.syncTime-(s.syncTime-took)/8)
	s.mu.Unlock()
	if err != nil {
		return classed("sync", err)
	}
	s.confirmSyncs(t)
	return nil
}

// silenceLimit returns how long a connection may stay silent before the Tap gives it
// up, so that there is time for another connection before a hold ends. A sync
// is sent four times a tick. A slow server is given longer.
func (s *session) silenceLimit() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return max(s.timeout/5, s.d.tick*3/8, 3*s.syncTime)
}

// confirmAfter returns how long after a sync's answer another one has to be sent to
// confirm it: a little more than half a tick.
func confirmAfter(tick time.Duration) time.Duration { return tick * 6 / 10 }

// confirmSyncs notes that a sync was answered, and which earlier syncs it confirms.
func (s *session) confirmSyncs(t answeredSync) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.epoch != s.epoch || !s.connected {
		return
	}
	keep := s.answeredSyncs[:0]
	for _, old := range s.answeredSyncs {
		if t.sent.Sub(old.answered) < confirmAfter(s.d.tick) {
			keep = append(keep, old)
		} else if old.sent.After(s.confirmed) {
			s.confirmed = old.sent
		}
	}
	s.answeredSyncs = append(keep, t)
}

// promise returns how long after from the session surely lives; s.mu is held. If the wall
// clock has advanced further than the monotonic clock, the wall clock counts:
// timers and the monotonic clock stand still while the machine sleeps.
func (s *session) promise(from time.Time) time.Duration {
	age := from.Sub(s.confirmed)
	if wall := from.Round(0).Sub(s.confirmed.Round(0)); wall > age {
		age = wall
	}
	return s.timeout - age
}

// watchAfter is the age at which a ticket's own node is watched. The watch costs one
// request, and most tickets are gone before that age.
const watchAfter = 100 * time.Millisecond

// sweep runs the background work: it drops tickets that were not renewed in
// time, and deletes nodes whose Leave was not confirmed. It also sets watches
// on the nodes of tickets older than watchAfter, so that the driver learns of
// another client's Break at once.
func (s *session) sweep() {
	now := time.Now()
	var gone, grown []*entry
	s.mu.Lock()
	if !s.connected {
		s.mu.Unlock()
		return
	}
	for r := range s.entries {
		switch {
		case r.leaving:
		case r.MustLeave:
			gone = append(gone, r)
		case r.Due(now):
			s.d.addTombstone(r.uuid)
			gone = append(gone, r)
		case (r.State == driver.Held || r.State == driver.Waiting) && !r.watched && now.Sub(r.born) > watchAfter:
			grown = append(grown, r)
		}
	}
	s.mu.Unlock()
	for _, r := range gone {
		if r.busy.TryLock() {
			_, _ = r.departLocked() // on an error the next sweep tries again
			r.busy.Unlock()
		}
	}
	for _, r := range grown {
		if r.busy.TryLock() {
			s.mu.Lock()
			watched := r.watched // by a renewal, since the sweep began
			s.mu.Unlock()
			if !watched {
				_ = r.verifyLocked()
			}
			r.busy.Unlock()
		}
	}
	s.retire()
}
