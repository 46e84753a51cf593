package memlock

import "time"

// TombstoneTTL is the time for which the store remembers that a ticket is Gone:
// longer than any request about the ticket can be in flight.
const TombstoneTTL = time.Minute

// tombstones holds the ids of tickets that are gone, for one to two
// TombstoneTTLs. A ticket that leaves with no request in flight needs no
// tombstone.
type tombstones struct {
	current, previous map[string]bool
	currentSince      time.Duration // when current was begun
}

// add adds a tombstone for an id.
func (ts *tombstones) add(id string, now time.Duration) {
	ts.rotate(now)
	if ts.current == nil {
		ts.current = make(map[string]bool)
	}
	ts.current[id] = true
}

// has reports whether an id has a tombstone.
func (ts *tombstones) has(id string, now time.Duration) bool {
	if ts.current == nil && ts.previous == nil {
		return false
	}
	ts.rotate(now)
	return ts.current[id] || ts.previous[id]
}

// rotate forgets old tombstones.
func (ts *tombstones) rotate(now time.Duration) {
	age := now - ts.currentSince
	if age < 0 { // the clock was set back
		ts.currentSince = now
		return
	}
	if age < TombstoneTTL {
		return
	}
	ts.previous = nil
	if age < 2*TombstoneTTL {
		ts.previous = ts.current
	}
	ts.current, ts.currentSince = nil, now
}
