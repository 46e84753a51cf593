package sqlqueue

// prefetch holds the rows that most requests need after the queue's row.
// Where the database is a round trip away, they are read together with that
// row, by separate statements that begin once it is locked.
type prefetch struct {
	id        string    // the request's ticket; empty for none
	ticket    []*ticket // the ticket with that id
	tombstone int64     // when its tombstone ends
	waiters   []*ticket // the first waiters
	unread    bool      // next is still unused
}

// prefetchWaiters is the number of waiters that are prefetched.
const prefetchWaiters = 2

// prefetchStmts returns the statements that fill q.prefetch.
func (q *queue) prefetchStmts() []*Stmt {
	next := q.t.firstWaiters.with(q.key, q.key, prefetchWaiters)
	next.Row = q.ifFound(q.ticketRow(&q.prefetch.waiters))
	q.prefetch.unread = true
	do := []*Stmt{next}
	if q.prefetch.id != "" {
		own := q.t.byID.with(q.key, q.prefetch.id)
		own.Row = q.ifFound(q.ticketRow(&q.prefetch.ticket))
		tombstone := q.t.tombstone.with(q.key, q.prefetch.id)
		tombstone.Row = func(scan func(...any) error) error { return scan(&q.prefetch.tombstone) }
		do = append(do, own, tombstone)
	}
	return do
}

// prefetchedTicket returns the ticket with this id from the ticket table, as a
// slice of at most one.
func (q *queue) prefetchedTicket(id string) ([]*ticket, error) {
	if q.d.Clock == nil && id == q.prefetch.id && id != "" {
		return q.merge(q.prefetch.ticket), nil
	}
	return q.tickets(q.t.byID.with(q.key, id))
}

// tombstoneOf returns when the tombstone of this id ends, 0 if there is none.
func (q *queue) tombstoneOf(id string) (int64, error) {
	if q.d.Clock == nil && id == q.prefetch.id && id != "" {
		return q.prefetch.tombstone, nil
	}
	return q.number(q.t.tombstone.with(q.key, id))
}

// ifFound skips rows while the queue's row was not found: another client may
// have created the queue since.
func (q *queue) ifFound(row func(func(...any) error) error) func(func(...any) error) error {
	return func(scan func(...any) error) error {
		if !q.found {
			return nil
		}
		return row(scan)
	}
}
