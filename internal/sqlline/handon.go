package sqlline

import (
	"context"

	"github.com/holdfast-go/holdfast/driver"
)

// handOnText hands a line that admits one at a time to the first who waits, as
// a leave of its holder does: it moves that ticket into the line's row. It does
// nothing unless the ticket that leaves is the only holder, and both are alone
// in their places and living. It must run in a later statement than the one
// that locked the row (F91).
//
// The ticket is named by where its row is, which only who has locked the line
// changes. Named by its line and place it may be looked for by the index of ids
// (PostgreSQL takes one for as good as the other), past all that have left the
// line and are not vacuumed yet: thousands, where many take turns.
//
// Placeholders: key, id, key, key, key, own address.
const handOnText = `
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
		CASE WHEN wake <> '' AND wake <> ? AND wake NOT LIKE '` + deafMark + `%' THEN {grant} END FROM g`

// handOn lets tickets leave lines in which somebody waits, or may, in one round
// trip each: the line's row is locked, and what this request most likely comes
// to is decided by statements that travel with that. Todo are those to try.
func (b *batch) handOn(ctx context.Context, s *Lines, db DB, todo []int) (pushes []Push) {
	for _, i := range todo {
		key, ref := b.keys[i], &b.refs[i]
		var left, waiting int64
		var granted *Push
		err := db.Tx(ctx, func(Tx) ([]*Stmt, error) {
			left, granted = 0, nil
			lock := s.t.hold.with(key)
			on := s.t.handOn.with(key, ref.ID, key, key, key, s.d.Self)
			on.Row = func(scan func(...any) error) error {
				p := Push{Place: driver.Place{State: driver.Held}}
				var token int64
				var told []byte
				err := scan(&left, &p.ID, &p.Wake, &token, &waiting, &told)
				p.Place.Token = uint64(token)
				granted = &p
				return err
			}
			// If nobody waits. A line that was handed on has another holder.
			leave := s.t.leave.once[0].with(key, ref.ID)
			leave.Row = func(scan func(...any) error) error {
				var k []byte
				return scan(&k, &left)
			}
			return []*Stmt{lock, on, leave}, nil
		})
		switch {
		case err != nil:
			b.answer(i, driver.Place{Err: err})
		case left > 0:
			b.answer(i, driver.Place{State: driver.Held, Token: uint64(left)})
			s.crowd.saw(key, granted != nil && waiting > 0)
			if granted != nil && granted.Wake != "" {
				pushes = append(pushes, *granted)
			}
		}
	}
	return pushes
}
