package sqlqueue

// prefetch holds the rows that most requests need after the queue's row.
// Where the database is a round trip away, they are read together with that
// row, by separate statements that begin once it is locked.
type prefetch struct {
	id        string    // the request's ticket; empty for none
	ticket    []*ticket // the ticket with that id
	tombstone int64     // when its tombstone ends
	waiters   []*ticket // the first waiters
	unread    bool      // waiters is still unused
}

// prefetchWaiters is the number of waiters that are prefetched.
const prefetchWaiters = 2

// prefetchStmts returns the statements that fill r.prefetch.
func (r *rows) prefetchStmts() []*Stmt {
	next := r.t.firstWaiters.with(r.key, r.key, prefetchWaiters)
	next.Row = r.ticketRow(&r.prefetch.waiters)
	r.prefetch.unread = true
	do := []*Stmt{next}
	if r.prefetch.id != "" {
		own := r.t.byID.with(r.key, r.prefetch.id)
		own.Row = r.ticketRow(&r.prefetch.ticket)
		tombstone := r.t.tombstone.with(r.key, r.prefetch.id)
		tombstone.Row = func(scan func(...any) error) error { return scan(&r.prefetch.tombstone) }
		do = append(do, own, tombstone)
	}
	return do
}

// prefetchedTicket returns the ticket with this id from the ticket table, as a
// slice of at most one.
func (r *rows) prefetchedTicket(id string) ([]*ticket, error) {
	if r.d.Clock == nil && id == r.prefetch.id && id != "" {
		return r.merge(r.prefetch.ticket), nil
	}
	return r.tickets(r.t.byID.with(r.key, id))
}

// tombstoneOf returns when the tombstone of this id ends, 0 if there is none.
func (r *rows) tombstoneOf(id string) (int64, error) {
	if r.d.Clock == nil && id == r.prefetch.id && id != "" {
		return r.prefetch.tombstone, nil
	}
	return r.number(r.t.tombstone.with(r.key, id))
}
