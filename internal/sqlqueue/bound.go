package sqlqueue

// A deadline further away than a renewal now would set it was written while the
// clock was ahead: the store's clock was set back since, or counts from a later
// start of its machine. The ticket may be alive, so it has not expired. But a
// dead ticket must not block a queue for as long as the clock is behind. So
// such a ticket counts as renewed just now, and so do all tickets of its queue.
// The first request that meets one writes that back.

// tooFar reports whether a deadline is further away than keep.
func (q *queue) tooFar(until, keep int64) bool {
	return until > q.now && until-q.now > keep
}

// bound returns a deadline that is at most keep away. If until was further
// away, bound also bounds all deadlines of the queue at the store.
func (q *queue) bound(until, keep int64) int64 {
	if !q.tooFar(until, keep) {
		return until
	}
	if !q.bounded {
		q.bounded = true
		q.write(q.t.bound.with(q.now, q.key, q.now))
		if q.due != never {
			q.due = q.now // the next advance reads it again
		}
	}
	return q.now + keep
}

// boundAll bounds the deadlines of tickets that were read.
func (q *queue) boundAll(rows []*ticket) {
	for _, t := range rows {
		t.until = q.bound(t.until, t.keep)
	}
}

// boundTombstones bounds the time for which tombstones are kept.
func (q *queue) boundTombstones() {
	if keep := micros(TombstoneTTL); q.tooFar(q.tombstones, keep) {
		q.tombstones = q.now + keep
		q.write(q.t.boundTombstones.with(q.tombstones, q.key, q.tombstones))
	}
}
