package sqlqueue

import (
	"context"

	"github.com/holdfast-go/holdfast/driver"
)

// handOffText releases a mutex and grants it to the first waiter: it moves the
// waiter's ticket into the queue's row. It does nothing unless the leaving
// ticket is the only holder, and both tickets are alive and alone in their
// places. It must run in a later statement than the one that locked the row
// (F91).
//
// The statement names the waiter's ticket by the physical address of its row
// (ctid), which only the client that has locked the queue changes. If the
// statement named it by queue and place, PostgreSQL might choose the index on
// ids, which it takes to be as good as the other. That index still has the
// thousands of tickets that left a busy queue since the last vacuum.
//
// Placeholders: key, id, key, key, key, own address.
const handOffText = `
	WITH n AS (
		DELETE FROM {ticket} t USING {line} l
		WHERE l.k = ? AND l.h_id = ? AND l.h_until > {now} AND l.h_owner = ''
			AND l.lim = 1 AND l.held = 1 AND l.waiting > 0 AND l.token < 9223372036854775807
			AND t.ctid = (SELECT ctid FROM {ticket}
				WHERE line = ? AND place > (SELECT turn FROM {line} WHERE k = ?) ORDER BY place, seq LIMIT 1)
			AND t.until > {now} AND t.owner = ''
		RETURNING {max}(l.token + 1, {tick}, t.floor) AS next, l.h_token AS was,
			t.place, t.id, t.units, t.keep, t.until, t.wake, t.meta
	), g AS (
		UPDATE {line} SET used = n.units, waiting = waiting - 1, turn = n.place, due = 9223372036854775807,
			token = n.next, h_token = n.next,
			h_id = n.id, h_units = n.units, h_place = n.place, h_keep = n.keep, h_until = n.until,
			h_wake = n.wake, h_meta = n.meta
		FROM n WHERE k = ?
		RETURNING n.was, n.id, n.wake, token, waiting
	)
	SELECT was, id, wake, token, waiting,
		CASE WHEN wake <> '' AND wake <> ? AND wake NOT LIKE '` + noPushPrefix + `%' THEN {grant} END FROM g`

// handOff lets tickets leave queues that are probably contended, in one round
// trip each. One statement locks the queue's row; the statements that decide
// the likely cases are sent with it. Todo has the indices of the refs to try.
func (b *batch) handOff(ctx context.Context, s *Queues, db DB, todo []int) (pushes []Push) {
	for _, i := range todo {
		key := b.keys[i]
		var d departure
		var err error
		if c := s.compounds(db); c != nil {
			d, err = c.leave(ctx, key, b.refs[i].ID)
		} else {
			d, err = s.leaveContended(ctx, db, key, b.refs[i].ID)
		}
		switch {
		case err != nil:
			b.setStatus(i, driver.Status{Err: err})
		case d.left > 0:
			b.setStatus(i, driver.Status{State: driver.Held, Token: uint64(d.left)})
			s.contention.record(key, d.granted != nil && d.waiting > 0)
			if d.granted != nil && d.granted.Wake != "" {
				pushes = append(pushes, *d.granted)
			}
		}
	}
	return pushes
}

// departure is the answer to a leave from a queue that is probably contended.
type departure struct {
	left    int64 // the token of the ticket that left, 0 if the statements did not decide
	granted *Push // the ticket that was granted, if any
	waiting int64 // the number of places that still wait, if one was granted
}

// leaveContended lets a ticket leave by statements that are sent together.
func (s *Queues) leaveContended(ctx context.Context, db DB, key []byte, id string) (d departure, err error) {
	err = db.Tx(ctx, func(Tx) ([]*Stmt, error) {
		d = departure{}
		lock := s.t.lockOnly.with(key)
		handOff := s.t.handOff.with(key, id, key, key, key, s.d.Self)
		handOff.Row = func(scan func(...any) error) error {
			p := Push{Status: driver.Status{State: driver.Held}}
			var token int64
			var caused []byte
			err := scan(&d.left, &p.ID, &p.Wake, &token, &d.waiting, &caused)
			p.Status.Token = uint64(token)
			d.granted = &p
			return err
		}
		// The leave of a queue without waiters. It does nothing if handOff
		// has changed the holder.
		leave := s.t.leave.once[0].with(key, id)
		leave.Row = func(scan func(...any) error) error {
			var k []byte
			return scan(&k, &d.left)
		}
		return []*Stmt{lock, handOff, leave}, nil
	})
	return d, err
}
