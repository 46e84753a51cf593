package sqlqueue

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-go/holdfast/driver"
)

// queue is one queue inside a transaction that has locked the queue's row.
type queue struct {
	*Queues
	ctx  context.Context
	tx   Tx
	key  []byte
	name string

	queueRow
	head    *ticket // the ticket in the row, or nil
	found   bool    // the row exists
	dirty   bool    // the row must be written
	bounded bool    // deadlines that were too far away are being written back
	now     int64
	tick    int64
	steps   int // holders dropped and tickets granted so far, at most driver.MaxSteps
	drops   int // waiters dropped so far, at most driver.MaxDrops

	prefetch    prefetch           // rows that were read with the queue's row
	known       []*ticket          // all tickets that were read, one struct for each
	knownByID   map[string]*ticket // the same, once they are many
	waiters     []*ticket          // the waiters that were read, from the front
	readTo      position           // where next ends
	moreWaiters bool               // there may be more after next
	expired     []*ticket          // expired and dropped, but not among writes yet
	writes      []*Stmt            // not sent yet
	pushes      []Push
}

type queueRow struct {
	lim, used, held, waiting, seq, turn, token, due, tombstones int64
}

// ticket is a row of the ticket table, or the ticket in the queue's row.
type ticket struct {
	place, seq             int64
	id, owner              string
	units, token, minToken int64
	keep, until            int64
	wake, meta             string
	inRow                  bool // it is in the queue's row
	gone                   bool // it was dropped by this request
}

type position struct{ place, seq int64 }

// visit locks the row of a queue and runs f on it, perhaps more than once: f
// must overwrite the results of an earlier run. If the row is missing, the
// queue is empty, and f must not write, unless create says that visit creates
// the row. Id is the id of a ticket that f will ask for, or empty.
func (s *Queues) visit(ctx context.Context, db DB, name, id string, create bool, f func(*queue) error) ([]Push, error) {
	var pushes []Push
	err := db.Tx(ctx, func(tx Tx) ([]*Stmt, error) {
		q := &queue{Queues: s, ctx: ctx, tx: tx, key: Key(name), name: name}
		q.prefetch.id = id
		pushes = nil
		if err := q.lock(create); err != nil {
			return nil, err
		}
		if err := f(q); err != nil {
			return nil, err
		}
		pushes = q.pushes
		s.contention.record(q.key, q.waiting > 0)
		return q.finish(), nil
	})
	if err != nil {
		return nil, err
	}
	return pushes, nil
}

// lock locks the queue's row and reads it.
func (q *queue) lock(create bool) error {
	lock := q.t.lock.with(q.key)
	lock.Row = func(scan func(...any) error) error {
		q.found = true
		return q.scan(scan)
	}
	clock := q.t.clock.with()
	clock.Row = func(scan func(...any) error) error { return scan(&q.now, &q.tick) }
	do := []*Stmt{lock}
	if q.d.Clock == nil {
		// The database is a round trip away. These statements begin once the
		// row is locked.
		do = append(do, clock)
		do = append(do, q.prefetchStmts()...)
	}
	if err := q.tx.Do(q.ctx, do...); err != nil {
		return err
	}
	if !q.found && create {
		do = append([]*Stmt{q.t.ensure.with(q.key, []byte(q.name))}, do...)
		// With several writers, a sweep may delete the row between the two
		// statements, but hardly twice.
		for i := 0; i < 3 && !q.found; i++ {
			if err := q.tx.Do(q.ctx, do...); err != nil {
				return err
			}
		}
		if !q.found {
			return driver.Errorf(driver.Refused, "the table of the layout version is empty")
		}
	}
	if q.d.Clock != nil {
		q.now, q.tick = q.d.Clock()
	}
	if !q.found {
		q.due = never
	}
	if q.head != nil {
		q.head.until = q.bound(q.head.until, q.head.keep)
	}
	q.boundTombstones()
	if q.tombstones != 0 && q.tombstones <= q.now {
		q.write(q.t.removeTombstones.with(q.key, q.now))
		q.tombstones = 0
	}
	return nil
}

func (q *queue) scan(scan func(...any) error) error {
	h := &ticket{inRow: true}
	var name []byte
	err := scan(&name, &q.lim, &q.used, &q.held, &q.waiting, &q.seq, &q.turn, &q.token, &q.due, &q.tombstones,
		&h.id, &h.owner, &h.units, &h.place, &h.token, &h.keep, &h.until, &h.wake, &h.meta)
	if err != nil {
		return err
	}
	if !bytes.Equal(name, []byte(q.name)) {
		return foreign("the row of line %q has another name", q.name)
	}
	if !q.valid() {
		return foreign("the row of line %q is not one of this layout", q.name)
	}
	q.moreWaiters = q.waiting > 0
	q.readTo = position{q.turn, never}
	if h.id != "" {
		if h.place < 1 || h.place > q.turn || h.units < 1 || h.units > q.used || h.token < 1 || h.token > q.token || h.keep < 1 || q.held < 1 {
			return foreign("the holder in the row of line %q is not one of this layout", q.name)
		}
		q.head = h
		q.remember(h)
	}
	return nil
}

// valid reports whether the row can have been written by this package.
func (r *queueRow) valid() bool {
	if r.lim < 0 || r.used < 0 || r.held < 0 || r.waiting < 0 || r.turn < 0 || r.turn > r.seq || r.token < 0 || r.tombstones < 0 {
		return false
	}
	if r.held == 0 {
		return r.used == 0
	}
	return r.held <= r.used && r.used <= r.lim
}

// read runs a statement after all statements that are still to be written.
func (q *queue) read(s *Stmt) error {
	q.writeExpired()
	if len(q.writes) == 0 {
		return q.tx.Do(q.ctx, s)
	}
	do := append(q.writes, s)
	q.writes = nil
	return q.tx.Do(q.ctx, do...)
}

// number runs a statement that returns one number.
func (q *queue) number(s *Stmt) (n int64, err error) {
	s.Row = func(scan func(...any) error) error { return scan(&n) }
	err = q.read(s)
	return n, err
}

// tickets runs a statement that returns rows of tickets. A ticket that was read
// before is returned as the same struct.
func (q *queue) tickets(s *Stmt) ([]*ticket, error) {
	rows, err := q.ticketsReadOnly(s)
	return q.merge(rows), err
}

// merge replaces tickets that were read before by their earlier structs, and
// adds the others to l.known.
func (q *queue) merge(rows []*ticket) []*ticket {
	q.boundAll(rows)
	for i, t := range rows {
		if same := q.knownTicket(t.id); same != nil {
			rows[i] = same
		} else {
			q.remember(t)
		}
	}
	return rows
}

// ticketsReadOnly does the same as tickets, for a request that changes none of
// them.
func (q *queue) ticketsReadOnly(s *Stmt) ([]*ticket, error) {
	var out []*ticket
	s.Row = q.ticketRow(&out)
	err := q.read(s)
	q.boundAll(out)
	return out, err
}

// ticketRow returns a Stmt.Row that appends to out.
func (q *queue) ticketRow(out *[]*ticket) func(func(...any) error) error {
	return func(scan func(...any) error) error {
		t := new(ticket)
		if err := t.scan(scan); err != nil {
			return err
		}
		if !q.fits(t) {
			return foreign("a ticket of line %q is not one of this layout", q.name)
		}
		*out = append(*out, t)
		return nil
	}
}

// scan reads the columns of a row of the ticket table.
func (t *ticket) scan(scan func(...any) error) error {
	return scan(&t.place, &t.seq, &t.id, &t.owner, &t.units, &t.token, &t.minToken, &t.keep, &t.until, &t.wake, &t.meta)
}

// fits reports whether a ticket can belong to this queue.
func (r *queueRow) fits(t *ticket) bool {
	return t.place >= 1 && t.seq >= t.place && t.seq <= r.seq && t.units >= 1 && t.units <= r.lim &&
		t.minToken >= 0 && t.keep >= 1 && (t.token > 0) == (t.place <= r.turn)
}

// remember adds a ticket to q.known.
func (q *queue) remember(t *ticket) {
	q.known = append(q.known, t)
	const many = 32
	switch {
	case q.knownByID != nil:
		q.knownByID[t.id] = t
	case len(q.known) > many:
		q.knownByID = make(map[string]*ticket)
		for _, t := range q.known {
			q.knownByID[t.id] = t
		}
	}
}

// knownTicket returns the ticket with this id if it was read already.
func (q *queue) knownTicket(id string) *ticket {
	if q.knownByID != nil {
		return q.knownByID[id]
	}
	for _, t := range q.known {
		if t.id == id {
			return t
		}
	}
	return nil
}

func (q *queue) write(s *Stmt) {
	q.writes = append(q.writes, s)
	q.dirty = true
}

// finish returns the statements that are still to be written.
func (q *queue) finish() []*Stmt {
	q.writeExpired()
	if !q.dirty {
		return q.writes
	}
	h := q.head
	if h == nil {
		h = new(ticket)
	}
	q.writes = append(q.writes, q.t.store.with(
		q.lim, q.used, q.held, q.waiting, q.seq, q.turn, q.token, q.due, q.tombstones,
		h.id, h.owner, h.units, h.place, h.token, h.keep, h.until, h.wake, h.meta, q.key))
	if q.d.Notify != nil && len(q.pushes) > 0 {
		q.writes = append(q.writes, q.d.Notify(q.pushes)...)
	}
	return q.writes
}

// foreignError is the error of a row that this package has not written.
type foreignError struct{ text string }

// Error returns which row is foreign, and why.
func (e foreignError) Error() string { return e.text }

func foreign(format, name string) error {
	return &driver.Error{Class: driver.Refused, Err: foreignError{fmt.Sprintf(format, name)}}
}

// Foreign reports whether err is about a row that this package has not written,
// so that its queue has no tickets.
func Foreign(err error) bool {
	_, ok := errors.AsType[foreignError](err)
	return ok
}
