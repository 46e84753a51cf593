package sqlqueue

import "strings"

// sizes are the numbers of tickets for which batched statements exist. A batch
// is filled up by repeating its first ticket, so that few texts are prepared.
//
// The greatest size is 999: MariaDB turns a list of a thousand values into a
// subquery, which takes ten times as long and locks rows in any order.
var sizes = [...]int{1, 16, 64, 256, 999}

type texts struct {
	// An uncontended queue, decided by one statement.
	join         *Text
	renew, leave fastTexts
	// Many queues at once.
	bulk bulkTexts
	// A queue in which somebody waits: nil where Dialect.NotifyGrant is empty.
	lockOnly, handOff, enqueue, steadyHolder *Text
	// The same, as compound statements.
	joinCompound, leaveCompound *Text

	// The queue's row, and the statements that run once it is locked.
	lock, clock, ensure, store                                  *Text
	byID, byOwner, countPlace, all, firstWaiters                *Text
	waiters, before, count, holders, holder, expired, due       *Text
	insert, remove, extend, grant                               *Text
	insertTombstone, tombstone, removeTombstones                *Text
	insertAllTombstones, removeAll                              bulkText
	bound, boundTombstones                                      *Text
	page, names, idle, takeStore, purged                        *Text
	purgeQueue                                                  *Text
	found, begin, boot, voidTickets, voidTombstones, voidQueues *Text
	stats                                                       *Text
	mark                                                        markTexts
}

// rowColumns are the columns of the line table other than key and name, in the
// order in which queueRow scans and stores them.
var rowColumns = []string{
	"lim", "used", "held", "waiting", "seq", "turn", "token", "due", "graves",
	"h_id", "h_owner", "h_units", "h_place", "h_token", "h_keep", "h_until", "h_wake", "h_meta",
}

const ticketColumns = "place, seq, id, owner, units, token, floor, keep, until, wake, meta"

// joinText takes the first place of an empty queue. The row it writes has the
// ticket in it. It returns no row when the queue is not empty, when the ticket
// has a tombstone or tombstones of others have ended, when another name has the
// key, or when the tokens are used up; a locking transaction then finds out
// which.
//
// The statement reads tombstones as they were when it began, and it may have
// waited for the row since. Each new tombstone changes the row, see
// rows.noteTombstone: if the row is unchanged, the statement has seen every
// tombstone.
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
	WHERE {line}.held = 0 AND {line}.waiting = 0
		AND ({line}.graves = 0 OR {line}.graves = (SELECT seen.graves FROM {line} seen WHERE seen.k = excluded.k)
			AND {line}.graves > {now} AND NOT EXISTS (SELECT 1 FROM {grave} WHERE line = excluded.k AND id = excluded.h_id))
		AND {line}.name = excluded.name AND {line}.token < 9223372036854775807
	RETURNING token`

// fastTexts decide about many tickets that are in the rows of their queues.
// Once decides in one statement. Where UPDATE has no RETURNING, there are two
// steps in one transaction: find locks the rows, and change then takes their
// keys. Single is for one ticket there.
type fastTexts struct {
	once, find, change [len(sizes)]*Text
	single             *Text
}

// unlockedKeys selects those queues of a list that nobody else has locked. A
// statement about many queues waits for none: a row that somebody keeps locked
// stops its own queue alone, and no two requests can wait for each other.
const unlockedKeys = "k IN (SELECT k FROM {line} WHERE k IN ({list}) ORDER BY k{skip})"

// The fast path of Renew renews a ticket only where no advance can be due, so
// that it need not read the rest of the queue.
const (
	renewSet   = "UPDATE {line} SET h_until = {max}(h_until, {now} + h_keep) WHERE k IN ({list})"
	renewWhere = " AND h_id IN ({list}) AND h_until > {now} AND (waiting = 0 OR (used = lim AND due > {now}))"
)

// The fast path of Leave removes a ticket only if it is alone in its queue and
// its owner is unnamed, so that no other ticket shares its place.
const (
	leaveSet   = "UPDATE {line} SET used = 0, held = 0, h_id = '', h_wake = '', h_meta = '' WHERE k IN ({list})"
	leaveWhere = " AND h_id IN ({list}) AND h_until > {now} AND h_owner = '' AND held = 1 AND waiting = 0"
)

// Frequent returns the texts that make up most requests. They are worth
// preparing where that costs nothing.
func (s *Queues) Frequent() []*Text {
	t := &s.t
	often := []*Text{t.join, t.lock, t.clock, t.firstWaiters, t.byID, t.tombstone, t.store, t.insert, t.remove, t.extend}
	for _, text := range []*Text{t.renew.once[0], t.leave.once[0], t.renew.single, t.leave.single, t.lockOnly, t.handOff, t.enqueue, t.steadyHolder, t.joinCompound, t.leaveCompound} {
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
	fast := func(set, where string) fastTexts {
		var single *Text
		if d.Note != "" {
			single = one(strings.Replace(set, " SET ", " SET h_token = {note}(h_token), ", 1) + where)
		}
		q := fastTexts{single: single, change: sized(set)}
		for i, n := range sizes {
			if n > d.batch() {
				break
			}
			lock, which := "{skip}", unlockedKeys
			if n == 1 || d.SkipLocked == "" {
				lock, which = "{lock}", "k IN ({list})"
			}
			q.once[i] = d.text(n, strings.Replace(set, "k IN ({list})", which, 1)+where+" RETURNING k, h_token")
			q.find[i] = d.text(n, "SELECT k, h_token FROM {line} WHERE k IN ({list})"+where+" ORDER BY k"+lock)
		}
		return q
	}
	ignore, overwrite := d.Ignore, d.Overwrite
	if ignore == "" {
		ignore = "ON CONFLICT (k) DO NOTHING"
	}
	if overwrite == "" {
		overwrite = "ON CONFLICT (line, id) DO UPDATE SET until = excluded.until"
	}
	join := d.Join
	if join == "" {
		join = joinText
	}
	var lockOnly, handOff, enqueue, steadyHolder *Text
	if d.NotifyGrant != "" {
		lockOnly, handOff = one("SELECT seq FROM {line} WHERE k = ?{lock}"), one(handOffText)
		enqueue, steadyHolder = one(enqueueText), one(steadyHolderText)
	}
	var joinCompound, leaveCompound *Text
	if d.JoinCompound != "" {
		joinCompound, leaveCompound = one(d.JoinCompound), one(d.LeaveCompound)
	}
	// The condition names several tickets by number. No two tickets of a queue have
	// the same number. The bounds of their places are for the index: of two lists,
	// SQLite looks for each place with each number.
	const several = " WHERE line = ? AND place >= ? AND place <= ? AND seq IN ({list})"
	const from = "SELECT " + ticketColumns + " FROM {ticket} WHERE line = ? "
	columns := strings.Join(rowColumns, ", ")
	return texts{
		join:  one(join),
		renew: fast(renewSet, renewWhere),
		leave: fast(leaveSet, leaveWhere),
		bulk:  newBulkTexts(d),

		lockOnly:     lockOnly,
		handOff:      handOff,
		enqueue:      enqueue,
		steadyHolder: steadyHolder,

		joinCompound:  joinCompound,
		leaveCompound: leaveCompound,

		lock:  one("SELECT name, " + columns + " FROM {line} WHERE k = ?{lock}"),
		clock: one("SELECT {now}, {tick}"),
		ensure: one("INSERT INTO {line} (k, name, " + columns + `)
			SELECT ?, ?, 0, 0, 0, 0, 0, 0, purged, 9223372036854775807, 0, '', '', 0, 0, 0, 0, 0, '', '' FROM {store}
			WHERE true ` + ignore),
		store: one("UPDATE {line} SET " + strings.Join(rowColumns, " = ?, ") + " = ? WHERE k = ?"),

		byID:         one(from + "AND id = ?"),
		byOwner:      one(from + "AND owner = ? ORDER BY place, seq"),
		countPlace:   one("SELECT count(*) FROM {ticket} WHERE line = ? AND place = ?"),
		all:          one(from + "ORDER BY place, seq"),
		waiters:      one(from + "AND place >= ? AND (place > ? OR seq > ?) ORDER BY place, seq LIMIT ?"),
		firstWaiters: one(from + "AND place > (SELECT turn FROM {line} WHERE k = ?) ORDER BY place, seq LIMIT ?"),
		before:       one(from + "AND place > ? AND place < ? ORDER BY place DESC, seq DESC LIMIT ?"),
		count:        one("SELECT count(DISTINCT place) FROM {ticket} WHERE line = ? AND place > ? AND place < ?"),
		holders:      one("SELECT place, until, keep FROM {ticket} WHERE line = ? AND place <= ?"),
		holder:       one("SELECT meta FROM {ticket} WHERE line = ? AND place <= ? ORDER BY place, seq LIMIT 1"),
		expired:      one(from + "AND place <= ? AND until <= ? ORDER BY place, seq LIMIT ?"),
		due:          one("SELECT coalesce(min(until), 9223372036854775807) FROM {ticket} WHERE line = ? AND place <= ?"),

		insert: one("INSERT INTO {ticket} (line, " + ticketColumns + `)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`),
		remove: one("DELETE FROM {ticket} WHERE line = ? AND place = ? AND seq = ?"),
		extend: one("UPDATE {ticket} SET until = ?, wake = ? WHERE line = ? AND place = ? AND seq = ?"),
		grant:  one("UPDATE {ticket} SET token = ? WHERE line = ? AND place = ?"),

		insertAllTombstones: newBulkText(d, "INSERT INTO {grave} (line, id, until) SELECT line, id, ? FROM {ticket}"+several+" "+overwrite),
		removeAll:           newBulkText(d, "DELETE FROM {ticket}"+several),

		insertTombstone:  one("INSERT INTO {grave} (line, id, until) VALUES (?, ?, ?) " + overwrite),
		tombstone:        one("SELECT until FROM {grave} WHERE line = ? AND id = ?"),
		removeTombstones: one("DELETE FROM {grave} WHERE line = ? AND until <= ?"),

		bound:           one("UPDATE {ticket} SET until = ? + keep WHERE line = ? AND until - keep > ?"),
		boundTombstones: one("UPDATE {grave} SET until = ? WHERE line = ? AND until > ?"),

		names: one(`SELECT k, name, waiting, due, h_id, h_until FROM {line}
			WHERE k > ? AND held + waiting > 0 ORDER BY k LIMIT ?`),
		page: one(`SELECT k, name, held, waiting, due, graves, token, h_id, h_until FROM {line}
			WHERE k > ? ORDER BY k LIMIT ?`),
		purged: one("UPDATE {store} SET purged = {max}(purged, ?) WHERE one = 1"),
		idle: d.text(sweepPage, `SELECT k FROM {line}
			WHERE k IN ({list}) AND held = 0 AND waiting = 0 AND graves <= ? AND token <= ? ORDER BY k{skip}`),
		takeStore:      one("SELECT purged FROM {store} WHERE one = 1{skip}"),
		purgeQueue:     one("DELETE FROM {line} WHERE k = ?"),
		found:          one("SELECT layout, boot FROM {store}"),
		begin:          one("INSERT INTO {store} (one, layout, boot, purged) VALUES (1, ?, ?, 0)"),
		boot:           one("UPDATE {store} SET boot = ?"),
		voidTickets:    one("DELETE FROM {ticket}"),
		voidTombstones: one("DELETE FROM {grave}"),
		voidQueues: one(`UPDATE {line} SET used = 0, held = 0, waiting = 0, due = 9223372036854775807, graves = 0,
			h_id = '', h_owner = '', h_wake = '', h_meta = '' WHERE held > 0 OR waiting > 0 OR graves > 0`),
		mark:  newMarkTexts(d),
		stats: one("SELECT count(*), coalesce(sum(held), 0), coalesce(sum(waiting), 0) FROM {line}"),
	}
}
