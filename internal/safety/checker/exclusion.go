package checker

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// checkExclusion applies C1: it sweeps the held intervals of a name. A hold
// that has not ended at t counts up to t.
func (c *Checker) checkExclusion(l *lockRecord, t int64) {
	overlaps(l, t, (*Op).until, func(at, end int64, units int64, in []*Op) {
		long := time.Duration(min(end, t) - at)
		limit := in[len(in)-1].Limit
		if c.violations.add("C1", l.name, at, fmt.Sprintf("%d of %d units were held at once, for %v", units, limit, long), in...) {
			c.stats.Overlaps++
		}
		c.stats.LongestOverlap = max(c.stats.LongestOverlap, long)
	})
}

// checkFunctionExclusion applies C10: it sweeps the intervals in which the
// protected functions ran. It finds calls that were let in during the clean-up
// of another, whose hold its client had ended; the other overlaps are C1's.
func (c *Checker) checkFunctionExclusion(l *lockRecord, t int64) {
	if !slices.ContainsFunc(l.live, func(op *Op) bool { return op.functionEnd() > op.until() }) {
		return
	}
	overlaps(l, t, (*Op).functionEnd, func(at, end int64, units int64, in []*Op) {
		if !slices.ContainsFunc(in, func(op *Op) bool { return op.until() <= at }) {
			return
		}
		c.violations.add("C10", l.name, at, fmt.Sprintf("%d of %d units worked at once, for %v: a function still ran when its client gave the lock back",
			units, in[len(in)-1].Limit, time.Duration(min(end, t)-at)), in...)
	})
}

// overlaps calls found for each instant at which granted calls take more than
// their limit, with the first end among them. The last of the calls was granted
// at that instant.
func overlaps(l *lockRecord, t int64, until func(*Op) int64, found func(at, end, units int64, in []*Op)) {
	type edge struct {
		at    int64
		enter bool
		op    *Op
	}
	var edges []edge
	for _, op := range l.live {
		from, to := op.Granted, min(until(op), t)
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
	nested := func(op *Op) bool { // a holder takes no further units for a nested hold
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
		end := until(e.op)
		for _, op := range in {
			end = min(end, until(op))
		}
		found(e.at, end, units, slices.Clone(in))
	}
}
