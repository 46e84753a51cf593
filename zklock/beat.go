package zklock

import (
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// How long a session lives is decided by the leader, and a member tells the
// leader only twice a tick which sessions it has heard of. So an answer of a
// member proves nothing yet: a member that is cut off together with its client
// answers pings for up to syncLimit ticks, while the leader lets the session
// expire. A request counts from when it was sent, but only once a sync, which
// the member has to pass on to the leader, was sent more than half a tick
// after the request's answer and has been answered, all on one connection:
// what a member says to the leader arrives in order.
//
// A beat is such a sync, four times a tick. It confirms the beats before it,
// so that the promise is never much older than a tick. The time-out that is
// asked for has room for that.

// slack is by how much a session's time-out exceeds the TTL of its tickets,
// besides 2 %.
func slack(tick time.Duration) time.Duration { return tick * 3 / 2 }

// late is how much longer than promised the server may keep a session: up to
// a tick because it looks once a tick, and half a tick for the member's word.
func late(tick time.Duration) time.Duration { return slack(tick) + tick*3/2 }

// timeoutFor is the time-out of the session for tickets of a TTL.
func timeoutFor(ttl, tick time.Duration) time.Duration {
	return (ttl + ttl/50 + slack(tick) + time.Millisecond - 1).Truncate(time.Millisecond)
}

// ttlFor is the longest TTL for a time-out.
func ttlFor(timeout, tick time.Duration) time.Duration {
	return ((timeout - slack(tick)) * 50 / 51).Truncate(time.Millisecond)
}

func (s *session) beat() {
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
		s.mu.Lock()
		connected := s.connected
		s.mu.Unlock()
		if connected {
			_ = s.sync() // what it says is in the promise, or else is not
		}
		select {
		case sweeping <- struct{}{}:
			s.done.Go(func() {
				s.sweep()
				<-sweeping
			})
		default: // the last one still goes on
		}
	}
}

// sync asks for an answer of the leader. Afterwards all events that happened
// before it was sent have been taken, see event.
func (s *session) sync() error {
	s.mu.Lock()
	t := touch{sent: time.Now(), epoch: s.epoch}
	s.mu.Unlock()
	if _, err := s.conn.Sync(s.d.syncPath()); err != nil {
		return classed("sync", err)
	}
	t.answered = time.Now()
	s.heard(t)
	return nil
}

// heard notes that a sync was answered, and with it what it confirms.
func (s *session) heard(t touch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.epoch != s.epoch || !s.connected {
		return
	}
	keep := s.touches[:0]
	for _, old := range s.touches {
		if t.sent.Sub(old.answered) < s.d.tick*6/10 {
			keep = append(keep, old)
		} else if old.sent.After(s.confirmed) {
			s.confirmed = old.sent
		}
	}
	s.touches = append(keep, t)
}

// promise is for how long after from the session surely lives. The wall clock
// counts too, where it has gone further: timers and the monotonic clock stand
// still while the machine sleeps.
func (s *session) promise(from time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	age := from.Sub(s.confirmed)
	if wall := from.Round(0).Sub(s.confirmed.Round(0)); wall > age {
		age = wall
	}
	return s.timeout - age
}

// youth is how old a ticket gets before its own node is watched, which costs
// one request: most are gone by then.
const youth = 100 * time.Millisecond

// sweep does what nobody asks for: it drops tickets that were not renewed in
// time, deletes nodes whose Leave was not confirmed, and sets the watches on
// the nodes of tickets that have come of age, so that somebody else's Break is
// heard of at once.
func (s *session) sweep() {
	now := time.Now()
	var gone, grown []*record
	s.mu.Lock()
	if !s.connected {
		s.mu.Unlock()
		return
	}
	for _, r := range s.recs {
		switch {
		case r.leaving:
		case r.left:
			gone = append(gone, r)
		case now.After(r.until):
			r.left = true
			s.d.bury(r.uuid)
			gone = append(gone, r)
		case (r.state == driver.Held || r.state == driver.Waiting) && !r.watched && now.Sub(r.born) > youth:
			grown = append(grown, r)
		}
	}
	s.mu.Unlock()
	for _, r := range gone {
		if r.busy.TryLock() {
			_, _ = s.depart(r) // the next sweep tries again
			r.busy.Unlock()
		}
	}
	for _, r := range grown {
		if r.busy.TryLock() {
			_ = s.verify(r)
			r.busy.Unlock()
		}
	}
}
