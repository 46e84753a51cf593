package zklock

import "time"

// graves are the UUIDs of tickets that are gone, kept for one to two minutes:
// longer than any request of theirs can be under way.
type graves struct {
	young, old map[[16]byte]struct{}
	since      time.Time
}

const requestAge = time.Minute

func (g *graves) add(uuid string, now time.Time) {
	if b, err := parseUUID(uuid); err == nil {
		g.turn(now)
		g.young[b] = struct{}{}
	}
}

func (g *graves) has(uuid string, now time.Time) bool {
	b, err := parseUUID(uuid)
	if err != nil {
		return false
	}
	g.turn(now)
	_, young := g.young[b]
	_, old := g.old[b]
	return young || old
}

func (g *graves) turn(now time.Time) {
	if g.young == nil || now.Sub(g.since) > requestAge {
		g.old, g.young, g.since = g.young, make(map[[16]byte]struct{}), now
	}
}
