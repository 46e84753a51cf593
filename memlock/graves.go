package memlock

import "time"

// RequestAge is for how long the store remembers that a ticket is Gone: longer
// than any request of it can be under way.
const RequestAge = time.Minute

// graves are the ids of tickets that are gone, kept for one to two RequestAges.
// Tickets that leave and have no request under way need none.
type graves struct {
	young, old map[string]bool
	since      time.Duration // when young was begun
}

// add buries an id.
func (g *graves) add(id string, now time.Duration) {
	g.turn(now)
	if g.young == nil {
		g.young = make(map[string]bool)
	}
	g.young[id] = true
}

// has says whether an id is buried.
func (g *graves) has(id string, now time.Duration) bool {
	if g.young == nil && g.old == nil {
		return false
	}
	g.turn(now)
	return g.young[id] || g.old[id]
}

// turn forgets what is old.
func (g *graves) turn(now time.Duration) {
	age := now - g.since
	if age < 0 { // the clock was set back
		g.since = now
		return
	}
	if age < RequestAge {
		return
	}
	g.old = nil
	if age < 2*RequestAge {
		g.old = g.young
	}
	g.young, g.since = nil, now
}
