package sqlqueue

import (
	"context"
	"slices"

	"github.com/holdfast-go/holdfast/driver"
)

// rows are the rows of one queue in a transaction that has locked the queue's
// row: those that were read, and those that are still to be written.
type rows struct {
	*queueRow // of the queue
	d         *Dialect
	t         *texts
	ctx       context.Context
	tx        Tx

	found    bool      // the queue's row exists
	dirty    bool      // the queue's row must be written
	bounded  bool      // deadlines that were too far away are being written back
	prefetch prefetch  // rows that were read with the queue's row
	known    ticketSet // all tickets that were read, one struct for each
	expired  []*ticket // expired and dropped, but not among writes yet
	writes   []*Stmt   // not sent yet
}

// lock locks the queue's row and reads it.
func (r *rows) lock(create bool) error {
	lock := r.t.lock.with(r.key)
	lock.Row = func(scan func(...any) error) error {
		r.found = true
		return r.scan(scan)
	}
	clock := r.t.clock.with()
	clock.Row = func(scan func(...any) error) error { return scan(&r.now, &r.tick) }
	do := []*Stmt{lock}
	if r.d.Clock == nil {
		// The database is a round trip away. These statements begin once the
		// row is locked.
		do = append(do, clock)
		do = append(do, r.prefetchStmts()...)
	}
	if err := r.tx.Do(r.ctx, do...); err != nil {
		return err
	}
	if !r.found && create {
		do = append([]*Stmt{r.t.ensure.with(r.key, []byte(r.name))}, do...)
		// With several writers, a sweep may delete the row between the two
		// statements, but hardly twice.
		for i := 0; i < 3 && !r.found; i++ {
			if err := r.tx.Do(r.ctx, do...); err != nil {
				return err
			}
		}
		if !r.found {
			return driver.Errorf(driver.Refused, "the table of the layout version is empty")
		}
	}
	if r.d.Clock != nil {
		r.now, r.tick = r.d.Clock()
	}
	if !r.found {
		r.due = never
	}
	if r.head != nil {
		r.known.add(r.head)
		r.head.until = r.bound(r.head.until, r.head.keep)
	}
	r.boundTombstones()
	if r.tombstones != 0 && r.tombstones <= r.now {
		r.write(r.t.removeTombstones.with(r.key, r.now))
		r.tombstones = 0
	}
	return nil
}

// read runs a statement after all statements that are still to be written.
func (r *rows) read(s *Stmt) error {
	r.writeExpired()
	if len(r.writes) == 0 {
		return r.tx.Do(r.ctx, s)
	}
	do := append(r.writes, s)
	r.writes = nil
	return r.tx.Do(r.ctx, do...)
}

// number runs a statement that returns one number.
func (r *rows) number(s *Stmt) (n int64, err error) {
	s.Row = func(scan func(...any) error) error { return scan(&n) }
	err = r.read(s)
	return n, err
}

// tickets runs a statement that returns rows of tickets. A ticket that was read
// before is returned as the same struct.
func (r *rows) tickets(s *Stmt) ([]*ticket, error) {
	rows, err := r.ticketsReadOnly(s)
	return r.merge(rows), err
}

// merge replaces tickets that were read before by their earlier structs, and
// adds the others to r.known.
func (r *rows) merge(rows []*ticket) []*ticket {
	for i, t := range rows {
		t.until = r.bound(t.until, t.keep)
		if same := r.known.get(t.id); same != nil {
			rows[i] = same
		} else {
			r.known.add(t)
		}
	}
	return rows
}

// ticketsReadOnly does the same as tickets, for a request that changes none of
// them.
func (r *rows) ticketsReadOnly(s *Stmt) ([]*ticket, error) {
	var out []*ticket
	s.Row = r.ticketRow(&out)
	err := r.read(s)
	for _, t := range out {
		t.until = r.bound(t.until, t.keep)
	}
	return out, err
}

// ticketRow returns a Stmt.Row that appends to out, if the queue has a row.
func (r *rows) ticketRow(out *[]*ticket) func(func(...any) error) error {
	return func(scan func(...any) error) error {
		if !r.found {
			return nil // another client has created the queue since
		}
		t := new(ticket)
		if err := t.scan(scan); err != nil {
			return err
		}
		if !r.fits(t) {
			return foreign("a ticket of line %r is not one of this layout", r.name)
		}
		*out = append(*out, t)
		return nil
	}
}

// write runs a statement later, before the next one that reads.
func (r *rows) write(s *Stmt) {
	r.writes = append(r.writes, s)
	r.dirty = true
}

// finish returns the statements that are still to be written, and those that
// send the pushes.
func (r *rows) finish(pushes []Push) []*Stmt {
	r.writeExpired()
	if !r.dirty {
		return r.writes
	}
	h := r.head
	if h == nil {
		h = new(ticket)
	}
	r.writes = append(r.writes, r.t.store.with(
		r.lim, r.used, r.held, r.waiting, r.seq, r.turn, r.token, r.due, r.tombstones,
		h.id, h.owner, h.units, h.place, h.token, h.keep, h.until, h.wake, h.meta, r.key))
	if r.d.Notify != nil && len(pushes) > 0 {
		r.writes = append(r.writes, r.d.Notify(pushes)...)
	}
	return r.writes
}

// addTombstone writes a tombstone for the ticket with this id.
func (r *rows) addTombstone(id string) {
	r.write(r.t.insertTombstone.with(r.key, id, r.noteTombstone(id)))
}

// noteTombstone records that a tombstone is being written, and returns when
// that tombstone ends. Each tombstone changes the queue's row, even if the
// clock was set back.
func (r *rows) noteTombstone(id string) (until int64) {
	until = r.now + micros(TombstoneTTL)
	r.tombstones = max(r.tombstones+1, until)
	if id == r.prefetch.id {
		r.prefetch.tombstone = until
	}
	return until
}

// writeExpired writes the removal of all expired tickets, in two statements for
// each bulkMax of them.
func (r *rows) writeExpired() {
	until := r.now + micros(TombstoneTTL)
	for some := range slices.Chunk(r.expired, bulkMax) {
		if len(some) == 1 {
			t := some[0]
			r.write(r.t.insertTombstone.with(r.key, t.id, until))
			r.write(r.t.remove.with(r.key, t.place, t.seq))
			continue
		}
		first, last := some[0].place, some[0].place
		var seqs []any
		for _, t := range some {
			first, last = min(first, t.place), max(last, t.place)
			seqs = append(seqs, t.seq)
		}
		n := sizeFor(len(some))
		which := append([]any{first, last}, filled(seqs, sizes[n])...)
		r.write(r.t.insertAllTombstones[n].with(append([]any{until, r.key}, which...)...))
		r.write(r.t.removeAll[n].with(append([]any{r.key}, which...)...))
	}
	r.expired = nil
}

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

// ticketSet is a set of tickets, found by their ids.
type ticketSet struct {
	all  []*ticket
	byID map[string]*ticket // the same, once they are many
}

// add adds a ticket that is not in the set.
func (s *ticketSet) add(t *ticket) {
	s.all = append(s.all, t)
	const many = 32
	switch {
	case s.byID != nil:
		s.byID[t.id] = t
	case len(s.all) > many:
		s.byID = make(map[string]*ticket)
		for _, t := range s.all {
			s.byID[t.id] = t
		}
	}
}

// get returns the ticket with this id, nil if there is none.
func (s *ticketSet) get(id string) *ticket {
	if s.byID != nil {
		return s.byID[id]
	}
	for _, t := range s.all {
		if t.id == id {
			return t
		}
	}
	return nil
}
