package sqlqueue

// A deadline further away than a renewal now would set it was written while the
// clock was ahead: the store's clock was set back since, or counts from a later
// start of its machine. The ticket may be alive, so it has not expired. But a
// dead ticket must not block a queue for as long as the clock is behind. So
// such a ticket counts as renewed just now, and so do all tickets of its queue.
// The first request that meets one writes that back.

// bound returns a deadline that is at most keep away. If until was further
// away, bound also bounds all deadlines of the queue at the store.
func (r *rows) bound(until, keep int64) int64 {
	if !r.tooFar(until, keep) {
		return until
	}
	if !r.bounded {
		r.bounded = true
		r.write(r.t.bound.with(r.now, r.key, r.now))
		if r.due != never {
			r.due = r.now // the next advance reads it again
		}
	}
	return r.now + keep
}

// boundTombstones bounds the time for which tombstones are kept.
func (r *rows) boundTombstones() {
	if keep := micros(TombstoneTTL); r.tooFar(r.tombstones, keep) {
		r.tombstones = r.now + keep
		r.write(r.t.boundTombstones.with(r.tombstones, r.key, r.tombstones))
	}
}
