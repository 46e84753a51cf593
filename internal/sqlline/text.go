package sqlline

import "strings"

// sizes are the numbers of tickets for which the batched statements exist; a
// batch is filled up with its last ticket, so that few texts are prepared.
//
// MariaDB makes a subquery of a list of a thousand values, which takes ten
// times as long and locks rows in any order.
var sizes = [...]int{1, 16, 64, 256, 999}

type texts struct {
	// An uncontended line, decided by one statement.
	join         *Text
	renew, leave quickTexts
	// One in which somebody waits: nil where Dialect.Grant is empty.
	hold, handOn, behind, held *Text

	// The line's row, and what is read once it is locked.
	lock, clock, ensure, store                             *Text
	own, owned, mates, all, firsts                         *Text
	waiters, before, count, holders, holder, over, due     *Text
	insert, remove, prolong, grant                         *Text
	bury, buried, unbury                                   *Text
	page, names, purged, purgeGraves, purgeLines           *Text
	found, begin, boot, voidTickets, voidGraves, voidLines *Text
	stats                                                  *Text
}

// rowColumns are what a row of the line table has beside its key and name, in
// the order in which lineRow scans and stores them.
var rowColumns = []string{
	"lim", "used", "held", "waiting", "seq", "turn", "token", "due", "graves",
	"h_id", "h_owner", "h_units", "h_place", "h_token", "h_keep", "h_until", "h_wake", "h_meta",
}

const ticketColumns = "place, seq, id, owner, units, token, floor, keep, until, wake, meta"

// joinText takes the first place of a line that has none. The row it writes
// has the ticket in it. No row comes back when the line is not empty, when one
// of its tickets has a grave, when a stranger's name has the key, or when the
// tokens are used up; a locking transaction then finds out which.
//
// Placeholders: key, name, limit, units, id, owner, units, keep, keep, wake,
// meta, floor.
const joinText = `
	INSERT INTO {line} (k, name, lim, used, held, waiting, seq, turn, token, due, graves,
		h_id, h_owner, h_units, h_place, h_token, h_keep, h_until, h_wake, h_meta)
	SELECT ?, ?, ?, ?, 1, 0, 1, 1, n.token, 9223372036854775807, 0,
		?, ?, ?, 1, n.token, ?, {now} + ?, ?, ?
	FROM (SELECT {max}({tick}, ?, purged + 1) AS token FROM {store}) n
	WHERE true
	ON CONFLICT (k) DO UPDATE SET
		lim = excluded.lim, used = excluded.used, held = 1, waiting = 0, seq = 1, turn = 1,
		token = {max}({line}.token + 1, excluded.token), due = excluded.due,
		h_id = excluded.h_id, h_owner = excluded.h_owner, h_units = excluded.h_units, h_place = 1,
		h_token = {max}({line}.token + 1, excluded.token), h_keep = excluded.h_keep,
		h_until = excluded.h_until, h_wake = excluded.h_wake, h_meta = excluded.h_meta
	WHERE {line}.held = 0 AND {line}.waiting = 0 AND {line}.graves = 0
		AND {line}.name = excluded.name AND {line}.token < 9223372036854775807
	RETURNING token`

// quickTexts decide about many tickets that are in the rows of their lines:
// all at once, or, where UPDATE has no RETURNING, in two steps of one
// transaction: find locks the rows, and change then takes their keys. Single
// is for one ticket there.
type quickTexts struct {
	once, find, change [len(sizes)]*Text
	single             *Text
}

// Which tickets can be renewed without a look at the rest of their lines:
// those where no advance can be due.
const (
	renewSet   = "UPDATE {line} SET h_until = {max}(h_until, {now} + h_keep) WHERE k IN ({list})"
	renewWhere = " AND h_id IN ({list}) AND h_until > {now} AND (waiting = 0 OR (used = lim AND due > {now}))"
)

// And which can leave: those alone in their lines, if their owner is unnamed,
// so that nobody shares their place.
const (
	leaveSet   = "UPDATE {line} SET used = 0, held = 0, h_id = '', h_wake = '', h_meta = '' WHERE k IN ({list})"
	leaveWhere = " AND h_id IN ({list}) AND h_until > {now} AND h_owner = '' AND held = 1 AND waiting = 0"
)

// Often returns the texts of which most requests consist: those that are worth
// preparing, where that costs nothing.
func (s *Lines) Often() []*Text {
	t := &s.t
	often := []*Text{t.join, t.lock, t.clock, t.firsts, t.own, t.buried, t.store, t.insert, t.remove, t.prolong}
	for _, text := range []*Text{t.renew.once[0], t.leave.once[0], t.renew.single, t.leave.single, t.hold, t.handOn, t.behind, t.held} {
		if text != nil {
			often = append(often, text)
		}
	}
	return often
}

func newTexts(d *Dialect) texts {
	one := func(s string) *Text { return d.text(1, s) }
	sized := func(s string) (t [len(sizes)]*Text) {
		for i, n := range sizes {
			if n <= d.batch() {
				t[i] = d.text(n, s)
			}
		}
		return t
	}
	quick := func(set, where string) quickTexts {
		var single *Text
		if d.Note != "" {
			single = one(strings.Replace(set, " SET ", " SET h_token = {note}(h_token), ", 1) + where)
		}
		return quickTexts{
			single: single,
			once:   sized(set + where + " RETURNING k, h_token"),
			find:   sized("SELECT k, h_token FROM {line} WHERE k IN ({list})" + where + " ORDER BY k{lock}"),
			change: sized(set),
		}
	}
	ignore, rebury := d.Ignore, d.Bury
	if ignore == "" {
		ignore = "ON CONFLICT (k) DO NOTHING"
	}
	if rebury == "" {
		rebury = "ON CONFLICT (line, id) DO UPDATE SET until = excluded.until"
	}
	join := d.Join
	if join == "" {
		join = joinText
	}
	var hold, handOn, behind, held *Text
	if d.Grant != "" {
		hold, handOn = one("SELECT seq FROM {line} WHERE k = ?{lock}"), one(handOnText)
		behind, held = one(behindText), one(heldText)
	}
	const from = "SELECT " + ticketColumns + " FROM {ticket} WHERE line = ? "
	columns := strings.Join(rowColumns, ", ")
	return texts{
		join:  one(join),
		renew: quick(renewSet, renewWhere),
		leave: quick(leaveSet, leaveWhere),

		hold:   hold,
		handOn: handOn,
		behind: behind,
		held:   held,

		lock:  one("SELECT name, " + columns + " FROM {line} WHERE k = ?{lock}"),
		clock: one("SELECT {now}, {tick}"),
		ensure: one("INSERT INTO {line} (k, name, " + columns + `)
			SELECT ?, ?, 0, 0, 0, 0, 0, 0, purged, 9223372036854775807, 0, '', '', 0, 0, 0, 0, 0, '', '' FROM {store}
			WHERE true ` + ignore),
		store: one("UPDATE {line} SET " + strings.Join(rowColumns, " = ?, ") + " = ? WHERE k = ?"),

		own:     one(from + "AND id = ?"),
		owned:   one(from + "AND owner = ? ORDER BY place, seq"),
		mates:   one("SELECT count(*) FROM {ticket} WHERE line = ? AND place = ?"),
		all:     one(from + "ORDER BY place, seq"),
		waiters: one(from + "AND place >= ? AND (place > ? OR seq > ?) ORDER BY place, seq LIMIT ?"),
		firsts:  one(from + "AND place > (SELECT turn FROM {line} WHERE k = ?) ORDER BY place, seq LIMIT ?"),
		before:  one(from + "AND place > ? AND place < ? ORDER BY place DESC, seq DESC LIMIT ?"),
		count:   one("SELECT count(DISTINCT place) FROM {ticket} WHERE line = ? AND place > ? AND place < ?"),
		holders: one("SELECT place, until FROM {ticket} WHERE line = ? AND place <= ?"),
		holder:  one("SELECT meta FROM {ticket} WHERE line = ? AND place <= ? ORDER BY place, seq LIMIT 1"),
		over:    one(from + "AND place <= ? AND until <= ? ORDER BY place, seq LIMIT ?"),
		due:     one("SELECT coalesce(min(until), 9223372036854775807) FROM {ticket} WHERE line = ? AND place <= ?"),

		insert: one("INSERT INTO {ticket} (line, " + ticketColumns + `)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`),
		remove:  one("DELETE FROM {ticket} WHERE line = ? AND place = ? AND seq = ?"),
		prolong: one("UPDATE {ticket} SET until = ?, wake = ? WHERE line = ? AND place = ? AND seq = ?"),
		grant:   one("UPDATE {ticket} SET token = ? WHERE line = ? AND place = ?"),

		bury:   one("INSERT INTO {grave} (line, id, until) VALUES (?, ?, ?) " + rebury),
		buried: one("SELECT until FROM {grave} WHERE line = ? AND id = ?"),
		unbury: one("DELETE FROM {grave} WHERE line = ? AND until <= ?"),

		names: one(`SELECT k, name, waiting, due, h_id, h_until FROM {line}
			WHERE k > ? AND held + waiting > 0 ORDER BY k LIMIT ?`),
		page: one(`SELECT k, name, held, waiting, due, graves, token, h_id, h_until FROM {line}
			WHERE k > ? ORDER BY k LIMIT ?`),
		purged:      one("UPDATE {store} SET purged = {max}(purged, ?) WHERE one = 1"),
		purgeGraves: d.text(sweepPage, "DELETE FROM {grave} WHERE line IN ({list}) AND until <= ?"),
		purgeLines: d.text(sweepPage, `DELETE FROM {line}
			WHERE k IN ({list}) AND held = 0 AND waiting = 0 AND graves <= ? AND token <= ?`),
		found:       one("SELECT layout, boot FROM {store}"),
		begin:       one("INSERT INTO {store} (one, layout, boot, purged) VALUES (1, ?, ?, 0)"),
		boot:        one("UPDATE {store} SET boot = ?"),
		voidTickets: one("DELETE FROM {ticket}"),
		voidGraves:  one("DELETE FROM {grave}"),
		voidLines: one(`UPDATE {line} SET used = 0, held = 0, waiting = 0, due = 9223372036854775807, graves = 0,
			h_id = '', h_owner = '', h_wake = '', h_meta = '' WHERE held > 0 OR waiting > 0 OR graves > 0`),
		stats: one("SELECT count(*), coalesce(sum(held), 0), coalesce(sum(waiting), 0) FROM {line}"),
	}
}
