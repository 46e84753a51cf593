package sqlline

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-go/holdfast/driver"
)

// line is one line inside a transaction that has locked its row.
type line struct {
	*Lines
	ctx  context.Context
	tx   Tx
	key  []byte
	name string

	lineRow
	head  *ticket // the one in the row, nil when there is none
	found bool    // the row exists
	dirty bool    // the row is to be written
	now   int64
	tick  int64
	steps int // tickets dropped or granted so far, at most driver.MaxSteps

	early  early     // what was read with the row, where that saves a round trip
	known  []*ticket // all that were read; one struct for each ticket
	next   []*ticket // those that wait, from the front, as far as they are read
	from   position  // where next ends
	rest   bool      // there may be more after next
	writes []*Stmt   // not sent yet
	pushes []Push
}

type lineRow struct {
	lim, used, held, waiting, seq, turn, token, due, graves int64
}

// ticket is a row of the ticket table, or the ticket in the line's row.
type ticket struct {
	place, seq          int64
	id, owner           string
	units, token, floor int64
	keep, until         int64
	wake, meta          string
	inLine              bool // it is in the line's row
	gone                bool // it was dropped by this request
}

type position struct{ place, seq int64 }

// visit locks the row of a line and runs f on it, perhaps more than once; what
// an earlier run left behind, f must overwrite. Without a row the line is empty
// and f must not write, unless create says that the row is to be made.
func (s *Lines) visit(ctx context.Context, db DB, name string, create bool, f func(*line) error) ([]Push, error) {
	return s.visitFor(ctx, db, name, "", create, f)
}

// visitFor is visit for a request that will ask for the ticket of this id.
func (s *Lines) visitFor(ctx context.Context, db DB, name, id string, create bool, f func(*line) error) ([]Push, error) {
	var pushes []Push
	err := db.Tx(ctx, func(tx Tx) ([]*Stmt, error) {
		l := &line{Lines: s, ctx: ctx, tx: tx, key: Key(name), name: name}
		l.early.id = id
		pushes = nil
		if err := l.lock(create); err != nil {
			return nil, err
		}
		if err := f(l); err != nil {
			return nil, err
		}
		pushes = l.pushes
		s.crowd.saw(l.key, l.waiting > 0)
		return l.finish(), nil
	})
	if err != nil {
		return nil, err
	}
	return pushes, nil
}

// lock locks the line's row and reads it.
func (l *line) lock(create bool) error {
	lock := l.t.lock.with(l.key)
	lock.Row = func(scan func(...any) error) error {
		l.found = true
		return l.scan(scan)
	}
	clock := l.t.clock.with()
	clock.Row = func(scan func(...any) error) error { return scan(&l.now, &l.tick) }
	do := []*Stmt{lock}
	if l.d.Clock == nil {
		// The database is a round trip away. These statements begin once the
		// row is locked.
		do = append(do, clock)
		do = append(do, l.readEarly()...)
	}
	if err := l.tx.Do(l.ctx, do...); err != nil {
		return err
	}
	if !l.found && create {
		do = append([]*Stmt{l.t.ensure.with(l.key, []byte(l.name))}, do...)
		// Where there are several writers, a sweep may delete a row that was
		// there between the two statements; hardly so twice.
		for i := 0; i < 3 && !l.found; i++ {
			if err := l.tx.Do(l.ctx, do...); err != nil {
				return err
			}
		}
		if !l.found {
			return driver.Errorf(driver.Refused, "the table of the layout version is empty")
		}
	}
	if l.d.Clock != nil {
		l.now, l.tick = l.d.Clock()
	}
	if !l.found {
		l.due = never
	}
	if l.graves != 0 && l.graves <= l.now {
		l.write(l.t.unbury.with(l.key, l.now))
		l.graves = 0
	}
	return nil
}

func (l *line) scan(scan func(...any) error) error {
	h := &ticket{inLine: true}
	var name []byte
	err := scan(&name, &l.lim, &l.used, &l.held, &l.waiting, &l.seq, &l.turn, &l.token, &l.due, &l.graves,
		&h.id, &h.owner, &h.units, &h.place, &h.token, &h.keep, &h.until, &h.wake, &h.meta)
	if err != nil {
		return err
	}
	if !bytes.Equal(name, []byte(l.name)) {
		return foreign("the row of line %q has another name", l.name)
	}
	if !l.sound() {
		return foreign("the row of line %q is not one of this layout", l.name)
	}
	l.rest = l.waiting > 0
	l.from = position{l.turn, never}
	if h.id != "" {
		if h.place < 1 || h.place > l.turn || h.units < 1 || h.units > l.used || h.token < 1 || h.token > l.token || h.keep < 1 || l.held < 1 {
			return foreign("the holder in the row of line %q is not one of this layout", l.name)
		}
		l.head = h
		l.known = append(l.known, h)
	}
	return nil
}

// sound says whether the row can have been written by this package.
func (r *lineRow) sound() bool {
	if r.lim < 0 || r.used < 0 || r.held < 0 || r.waiting < 0 || r.turn < 0 || r.turn > r.seq || r.token < 0 || r.graves < 0 {
		return false
	}
	if r.held == 0 {
		return r.used == 0
	}
	return r.held <= r.used && r.used <= r.lim
}

// read runs a statement after everything that was written so far.
func (l *line) read(s *Stmt) error {
	if len(l.writes) == 0 {
		return l.tx.Do(l.ctx, s)
	}
	do := append(l.writes, s)
	l.writes = nil
	return l.tx.Do(l.ctx, do...)
}

// number runs a statement that returns one number.
func (l *line) number(s *Stmt) (n int64, err error) {
	s.Row = func(scan func(...any) error) error { return scan(&n) }
	err = l.read(s)
	return n, err
}

// tickets runs a statement that returns rows of tickets. A ticket that was
// read before comes back as the same struct.
func (l *line) tickets(s *Stmt) ([]*ticket, error) {
	rows, err := l.ticketsUnmet(s)
	return l.same(rows), err
}

// same replaces tickets that were read before by the structs they were read
// into, and remembers the others.
func (l *line) same(rows []*ticket) []*ticket {
	for i, t := range rows {
		if same := l.met(t.id); same != nil {
			rows[i] = same
		} else {
			l.known = append(l.known, t)
		}
	}
	return rows
}

// ticketsUnmet is tickets for a request that changes none of them.
func (l *line) ticketsUnmet(s *Stmt) ([]*ticket, error) {
	var out []*ticket
	s.Row = l.ticketRow(&out)
	err := l.read(s)
	return out, err
}

// ticketRow returns a Stmt.Row that appends to out.
func (l *line) ticketRow(out *[]*ticket) func(func(...any) error) error {
	return func(scan func(...any) error) error {
		t := new(ticket)
		err := scan(&t.place, &t.seq, &t.id, &t.owner, &t.units, &t.token, &t.floor, &t.keep, &t.until, &t.wake, &t.meta)
		if err != nil {
			return err
		}
		if t.place < 1 || t.seq < t.place || t.seq > l.seq || t.units < 1 || t.units > l.lim ||
			t.floor < 0 || t.keep < 1 || (t.token > 0) != (t.place <= l.turn) {
			return foreign("a ticket of line %q is not one of this layout", l.name)
		}
		*out = append(*out, t)
		return nil
	}
}

// met returns the ticket of this id if it was read already.
func (l *line) met(id string) *ticket {
	for _, t := range l.known {
		if t.id == id {
			return t
		}
	}
	return nil
}

func (l *line) write(s *Stmt) {
	l.writes = append(l.writes, s)
	l.dirty = true
}

// finish returns what is left to be written.
func (l *line) finish() []*Stmt {
	if !l.dirty {
		return l.writes
	}
	h := l.head
	if h == nil {
		h = new(ticket)
	}
	l.writes = append(l.writes, l.t.store.with(
		l.lim, l.used, l.held, l.waiting, l.seq, l.turn, l.token, l.due, l.graves,
		h.id, h.owner, h.units, h.place, h.token, h.keep, h.until, h.wake, h.meta, l.key))
	if l.d.Tell != nil && len(l.pushes) > 0 {
		l.writes = append(l.writes, l.d.Tell(l.pushes)...)
	}
	return l.writes
}

// foreignError says that a row is not one that this package has written.
type foreignError struct{ text string }

// Error says which row, and why.
func (e foreignError) Error() string { return e.text }

func foreign(format, name string) error {
	return &driver.Error{Class: driver.Refused, Err: foreignError{fmt.Sprintf(format, name)}}
}

// Foreign says whether err is about a row that is not one of this package, so
// that nobody can live in its line.
func Foreign(err error) bool {
	_, ok := errors.AsType[foreignError](err)
	return ok
}
