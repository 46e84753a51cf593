package etcdlock

import (
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/heap"
)

const (
	// ownWatchDelay is the time that a place holds before its own key is watched, and
	// minWatchDelay the time that it waits before its predecessor's key is watched:
	// a place that comes and goes quickly gets no watch at all. minWatchDelay may be
	// longer: most predecessors that leave without a wake-up have died, and
	// their leases took longer to end; and a foreign predecessor is watched at
	// once.
	ownWatchDelay = 200 * time.Millisecond
	minWatchDelay = time.Second
	// watchDelayTimes is the delay of a waiting place, in multiples of the time that
	// an answer takes, if that is more than minWatchDelay: with a slow server, every
	// waiter has soon waited for a second.
	watchDelayTimes = 20
	// maxOwnWatches bounds the watches on the driver's own keys; the other places are
	// read with each Renew.
	maxOwnWatches = 256
)

// schedule orders places by the time of their next check. places.mu guards it.
type schedule struct {
	*cluster
	places    heap.Heap[*place, byCheck]
	nextRound time.Time // of the janitor
	kick      func()    // makes that round begin now
}

// byCheck orders places by the time of their next check.
type byCheck struct{}

func (byCheck) Before(a, b *place) bool { return a.checkAt.Before(b.checkAt) }
func (byCheck) Index(p *place) *int32   { return &p.heapIndex }

// watchDelay returns how long a place waits before its predecessor's key is
// watched. Without that watch, a renewal notices at the latest that the
// predecessor has gone.
func (s *schedule) watchDelay(ttl time.Duration) time.Duration {
	return s.pace.times(watchDelayTimes, minWatchDelay, max(minWatchDelay, ttl/3))
}

// check schedules a check of a place after a delay, or when its time is over if that
// is earlier.
func (s *schedule) check(p *place, delay time.Duration) {
	at := time.Now().Add(delay)
	if p.Until.Before(at) {
		at = p.Until
	}
	s.set(p, at)
}

func (s *schedule) set(p *place, at time.Time) {
	p.checkAt = at
	s.places.Set(p)
	if s.nextRound.IsZero() || at.Before(s.nextRound) {
		s.nextRound = at
		s.kick()
	}
}

// beginRound returns the time of the janitor's next round: that of the first check,
// if the janitor is free for one, and at the latest the time given.
func (ps *places) beginRound(latest time.Time, free bool) time.Time {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	s := &ps.schedule
	s.nextRound = latest
	if free && len(s.places) > 0 && s.places[0].checkAt.Before(latest) {
		s.nextRound = s.places[0].checkAt
	}
	return s.nextRound
}

// takeDue takes the work that is due off the heap: places whose time is over, and
// places to read, no more than that many.
func (ps *places) takeDue(most int) (over []driver.Ref, reads []*place) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	now := time.Now()
	for len(ps.schedule.places) > 0 && len(reads) < most && len(over) < maxReads {
		p := ps.schedule.places[0]
		if p.checkAt.After(now) {
			break
		}
		if !p.Until.After(now) {
			p.MustLeave = true
			over = append(over, driver.Ref{Ticket: p.t, State: p.State})
			ps.schedule.set(p, now.Add(p.t.TTL/10+50*time.Millisecond)) // in case the removal fails
			continue
		}
		ps.schedule.set(p, p.Until)
		switch {
		case p.ownRev() == 0 || p.watch != nil || !ps.pushes.wanted() || p.State == driver.Held && ps.watched >= maxOwnWatches:
		case p.State == driver.Waiting && p.predecessorKey != "":
			// The watch begins at the revision of the place's Join. The server
			// serves it late, at its next tick, but it costs no other request.
			ps.watchPredecessorLocked(p, p.predecessorKey, p.rev+1)
			p.predecessorKey = ""
		default:
			reads = append(reads, p)
		}
	}
	return over, reads
}

// abandoned returns those sessions of which keep-alives are of no use, because every
// place in them is to go: a user who has lost a right cannot delete the keys, and
// only the end of the lease removes them.
func (ps *places) abandoned(all []*session) map[*session]bool {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	abandoned := make(map[*session]bool)
	for _, s := range all {
		abandoned[s] = len(s.places) > 0
		for p := range s.places {
			if !p.MustLeave && !p.left {
				abandoned[s] = false
				break
			}
		}
	}
	return abandoned
}
