package sqlline

import (
	"context"

	"github.com/holdfast-go/holdfast/driver"
)

// standing is a line in which nothing is due and nobody can be let in: its
// holder is known, and either all units are held, or nobody waits and those
// that a ticket wants are not free. What the line does with such a ticket, one
// of no named owner that the line has never seen, is to put it last; who wants
// to hold at once or not at all gets none. All else is for a transaction that
// reads the line.
//
// The time is read once, so that all parts decide alike. Before is when the
// last of those who wait is over, or the holder if nobody waits.
//
// Placeholders: key, name, limit, id, units, key, id, key, id.
const standing = `
	WITH l AS (
		SELECT seq, held, waiting, due, graves, h_until, h_meta, {now} AS now,
			CASE WHEN waiting = 0 THEN h_until ELSE (
				SELECT until FROM {ticket} WHERE line = k AND place = (
					SELECT place FROM {ticket} WHERE line = k AND place > turn ORDER BY place DESC LIMIT 1)
				ORDER BY until DESC LIMIT 1
			) END AS before
		FROM {line}
		WHERE k = ? AND name = ? AND lim = ? AND h_id <> '' AND h_id <> ?
			AND token BETWEEN 1 AND 9223372036854775806 AND h_token BETWEEN 1 AND token
			AND used BETWEEN 1 AND lim AND held BETWEEN 1 AND used AND h_place BETWEEN 1 AND turn AND turn <= seq
			AND (waiting > 0 AND used = lim OR waiting = 0 AND held = 1 AND h_owner = '' AND ? > lim - used)
			AND NOT EXISTS (SELECT FROM {ticket} WHERE line = ? AND id = ?)
	), s AS (
		SELECT * FROM l WHERE h_until > now AND due > now AND before > now
			AND (graves = 0 OR graves > now AND NOT EXISTS (
				SELECT FROM {grave} WHERE line = ? AND id = ? AND until > now))
	)`

// behindText puts a ticket last in a line, as standing says. It must run in a
// later statement than the one that locked the line's row (F91).
//
// Placeholders: those of standing, then key, key, id, units, floor, keep, keep,
// wake, meta.
const behindText = standing + `, u AS (
		UPDATE {line} SET seq = s.seq + 1, waiting = s.waiting + 1 FROM s WHERE k = ?
	), t AS (
		INSERT INTO {ticket} (line, ` + ticketColumns + `)
		SELECT ?, s.seq + 1, s.seq + 1, ?, '', ?, 0, ?, ?, s.now + ?, ?, ? FROM s
	)
	SELECT held + waiting, before - now, h_meta FROM s`

// heldText says who holds a line, as standing says.
const heldText = standing + " SELECT held + waiting, before - now, h_meta FROM s"

// joinBusy joins a line that is likely to have a holder, in one round trip: the
// row is taken if it is free, and locked if it is not, and what this request
// most likely comes to then is decided by a statement that travels with that.
// It answers no place if it is not so likely a case; nothing has changed then.
func (s *Lines) joinBusy(ctx context.Context, db DB, t *driver.Ticket, key []byte, wake string, wait bool) (p driver.Place, err error) {
	keep := micros(driver.Keep(t.TTL))
	err = db.Tx(ctx, func(Tx) ([]*Stmt, error) {
		p = driver.Place{}
		join := s.joinFree(t, key, wake)
		join.Row = func(scan func(...any) error) error {
			var token int64
			err := scan(&token)
			p = driver.Place{State: driver.Held, Token: uint64(token), Lease: t.TTL}
			return err
		}
		if t.Owner != "" {
			return []*Stmt{join}, nil
		}
		args := []any{key, []byte(t.Name), t.Limit, t.ID, t.Units, key, t.ID, key, t.ID}
		text := s.t.held
		if wait {
			text = s.t.behind
			args = append(args, key, key, t.ID, t.Units, int64(t.Floor), keep, keep, wake, t.Meta)
		}
		behind := text.with(args...)
		behind.Row = func(scan func(...any) error) error {
			var ahead, left int64
			p = driver.Place{State: driver.Gone}
			err := scan(&ahead, &left, &p.Holder)
			if wait {
				p.State, p.Lease = driver.Waiting, t.TTL
				p.Ahead = int(ahead)
				p.Recheck = max(soon, duration(left))
			}
			return err
		}
		return []*Stmt{join, behind}, nil
	})
	if err != nil {
		return driver.Place{}, err
	}
	if p.State != 0 {
		s.crowd.saw(key, p.State != driver.Held)
	}
	return p, nil
}
