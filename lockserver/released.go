package lockserver

import (
	"encoding/binary"
	"time"
)

// releasedIDs remembers ids that were released, 8 bytes for each, for two minutes at
// least and four at most.
type releasedIDs struct {
	now, before map[uint64]struct{}
	since       time.Time
}

// maxReleased bounds each of the two sets, so that a flood of releases cannot fill the
// memory.
const maxReleased = 1 << 20

func (r *releasedIDs) turn(now time.Time) {
	switch age := now.Sub(r.since); {
	case age >= 2*releasedFor:
		r.now, r.before, r.since = make(map[uint64]struct{}), nil, now
	case age >= releasedFor:
		r.now, r.before, r.since = make(map[uint64]struct{}), r.now, now
	}
}

func (r *releasedIDs) add(k holdKey) {
	r.turn(time.Now())
	if len(r.now) < maxReleased {
		r.now[binary.BigEndian.Uint64(k[:])] = struct{}{}
	}
}

func (r *releasedIDs) has(k holdKey) bool {
	r.turn(time.Now())
	short := binary.BigEndian.Uint64(k[:])
	_, now := r.now[short]
	_, before := r.before[short]
	return now || before
}
