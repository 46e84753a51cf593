package sqlqueue

import (
	"context"

	"github.com/holdfast-go/holdfast/driver"
)

// steadyText selects a queue in which nothing is due and no waiter can be
// granted: its holder is known, and either all units are held, or nobody waits
// and too few units are free for the ticket. A ticket of no named owner that is
// new to such a queue goes to its end, or, if it must not wait, gets nothing.
// All other cases are for a transaction that reads the queue.
//
// The time is read once, so that all parts decide alike. The column before is
// the expiry of the last waiter, or of the holder if nobody waits. A holder
// whose deadline is further away than a renewal would set it is for the
// transaction that reads the queue, see rows.bound.
//
// Placeholders: key, name, limit, id, units, key, id, key, id.
const steadyText = `
	WITH l AS (
		SELECT seq, held, waiting, due, graves, h_until, h_keep, h_owner, h_meta, {now} AS now,
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
		SELECT * FROM l WHERE h_until > now AND h_until - h_keep <= now AND due > now AND before > now
			AND (graves = 0 OR graves > now AND NOT EXISTS (
				SELECT FROM {grave} WHERE line = ? AND id = ? AND until > now))
	)`

// enqueueText puts a ticket at the end of a queue that meets the conditions of
// steadyText. It must run in a later statement than the one that locked the
// queue's row (F91).
//
// Placeholders: those of steadyText, then key, key, id, units, floor, keep,
// keep, wake, meta.
const enqueueText = steadyText + `, u AS (
		UPDATE {line} SET seq = s.seq + 1, waiting = s.waiting + 1 FROM s WHERE k = ?
	), t AS (
		INSERT INTO {ticket} (line, ` + ticketColumns + `)
		SELECT ?, s.seq + 1, s.seq + 1, ?, '', ?, 0, ?, ?, s.now + ?, ?, ? FROM s
	)
	SELECT held + waiting, before - now, h_meta FROM s`

// steadyHolderText reads the holder of a queue that meets the conditions of
// steadyText, and when it expires. A named owner may have more tickets than the
// row tells of, of which the last to expire counts: it is for the transaction
// that reads the queue.
const steadyHolderText = steadyText + " SELECT held + waiting, h_until - now, h_meta FROM s WHERE h_owner = ''"

// joinContended joins a queue that probably has a holder, in one round trip. A
// first statement takes the queue's row if the queue is empty, and otherwise
// locks it. A second statement, sent with the first, decides the likely case.
// If neither applies, joinContended returns a status without a state, and
// nothing has changed.
func (s *Queues) joinContended(ctx context.Context, db DB, t *driver.Ticket, key []byte, wake string, wait bool) (p driver.Status, err error) {
	keep := micros(driver.Keep(t.TTL))
	err = db.Tx(ctx, func(Tx) ([]*Stmt, error) {
		p = driver.Status{}
		join := s.joinEmpty(t, key, wake)
		join.Row = func(scan func(...any) error) error {
			var token int64
			err := scan(&token)
			p = driver.Status{State: driver.Held, Token: uint64(token), Lease: t.TTL}
			return err
		}
		if t.Owner != "" {
			return []*Stmt{join}, nil
		}
		args := []any{key, []byte(t.Name), t.Limit, t.ID, t.Units, key, t.ID, key, t.ID}
		text := s.t.steadyHolder
		if wait {
			text = s.t.enqueue
			args = append(args, key, key, t.ID, t.Units, int64(t.MinToken), keep, keep, wake, t.Meta)
		}
		enqueue := text.with(args...)
		enqueue.Row = func(scan func(...any) error) error {
			var ahead, left int64
			p = driver.Status{State: driver.Gone}
			err := scan(&ahead, &left, &p.Holder)
			p.Recheck = max(minRecheck, duration(left))
			if wait {
				p.State, p.Lease = driver.Waiting, t.TTL
				p.Ahead = int(ahead)
			}
			return err
		}
		return []*Stmt{join, enqueue}, nil
	})
	if err != nil {
		return driver.Status{}, err
	}
	if p.State != 0 {
		s.contention.record(key, p.State != driver.Held)
	}
	return p, nil
}
