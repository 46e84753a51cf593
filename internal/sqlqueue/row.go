package sqlqueue

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/holdfast-go/holdfast/driver"
)

// queueRow is the row of a queue, and the store's time when it was locked.
type queueRow struct {
	key  []byte
	name string

	lim, used, held, waiting, seq, turn, token, due, tombstones int64

	head      *ticket // the ticket in the row, or nil
	now, tick int64
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

// scan reads the row of the queue with this name, and checks it.
func (q *queueRow) scan(scan func(...any) error) error {
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
	if h.id != "" {
		if h.place < 1 || h.place > q.turn || h.units < 1 || h.units > q.used || h.token < 1 || h.token > q.token || h.keep < 1 || q.held < 1 {
			return foreign("the holder in the row of line %q is not one of this layout", q.name)
		}
		q.head = h
	}
	return nil
}

// valid reports whether the row can have been written by this package.
func (q *queueRow) valid() bool {
	if q.lim < 0 || q.used < 0 || q.held < 0 || q.waiting < 0 || q.turn < 0 || q.turn > q.seq || q.token < 0 || q.tombstones < 0 {
		return false
	}
	if q.held == 0 {
		return q.used == 0
	}
	return q.held <= q.used && q.used <= q.lim
}

// scan reads the columns of a row of the ticket table.
func (t *ticket) scan(scan func(...any) error) error {
	return scan(&t.place, &t.seq, &t.id, &t.owner, &t.units, &t.token, &t.minToken, &t.keep, &t.until, &t.wake, &t.meta)
}

// fits reports whether a ticket can belong to this queue.
func (q *queueRow) fits(t *ticket) bool {
	return t.place >= 1 && t.seq >= t.place && t.seq <= q.seq && t.units >= 1 && t.units <= q.lim &&
		t.minToken >= 0 && t.keep >= 1 && (t.token > 0) == (t.place <= q.turn)
}

// nextToken computes driver.NextToken on the store's clock. Tokens never wrap:
// joins are refused once the last token is maxToken, and tickets that wait by
// then are all granted with maxToken.
func (q *queueRow) nextToken(minToken int64) int64 {
	next := q.token
	if next < maxToken {
		next++
	}
	return max(next, q.tick, minToken)
}

// dropPlace counts a place out, whose last ticket was t.
func (q *queueRow) dropPlace(t *ticket) {
	if t.place > q.turn {
		q.waiting--
	} else {
		q.held--
		q.used -= t.units
	}
}

// tooFar reports whether a deadline is further away than keep.
func (q *queueRow) tooFar(until, keep int64) bool {
	return until > q.now && until-q.now > keep
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
