package check

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// exclusion is C1: a sweep of the held intervals of a name. What is still held
// at t counts up to t.
func (c *Checker) exclusion(l *line, t int64) {
	type edge struct {
		at    int64
		enter bool
		op    *Op
	}
	var edges []edge
	for _, op := range l.live {
		from, to := op.Granted, min(op.until(), t)
		if from < to {
			edges = append(edges, edge{from, true, op}, edge{to, false, op})
		}
	}
	slices.SortFunc(edges, func(a, b edge) int {
		if n := cmp.Compare(a.at, b.at); n != 0 || a.enter == b.enter {
			return n
		}
		if a.enter { // an interval does not include its end
			return 1
		}
		return -1
	})
	var in []*Op
	var units int64
	nested := func(op *Op) bool { // who holds already takes no more room
		return slices.ContainsFunc(in, func(other *Op) bool { return other.owner() == op.owner() })
	}
	for _, e := range edges {
		if !e.enter {
			in = slices.DeleteFunc(in, func(op *Op) bool { return op == e.op })
			if !nested(e.op) {
				units -= e.op.Units
			}
			continue
		}
		if !nested(e.op) {
			units += e.op.Units
		}
		in = append(in, e.op)
		if units <= e.op.Limit {
			continue
		}
		end := e.op.until()
		for _, op := range in {
			end = min(end, op.until())
		}
		long := time.Duration(min(end, t) - e.at)
		if c.violate("C1", l.name, e.at, fmt.Sprintf("%d of %d units were held at once, for %v", units, e.op.Limit, long), slices.Clone(in)...) {
			c.stats.Overlaps++
		}
		c.stats.LongestOverlap = max(c.stats.LongestOverlap, long)
	}
}
