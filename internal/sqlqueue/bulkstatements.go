package sqlqueue

import "strings"

// bulkMax is the maximum number of tickets that one transaction decides about.
const bulkMax = 256

// bulkText is the text of a statement for each of the sizes up to bulkMax.
type bulkText [len(sizes)]*Text

// with returns the statement of the smallest sufficient size, its list filled
// up to that size.
func (t *bulkText) with(args []any, before ...any) *Stmt {
	n := sizeFor(len(args))
	return t[n].with(append(before, filled(args, sizes[n])...)...)
}

// pairs returns the same as with, for a statement about pairs of arguments.
func (t *bulkText) pairs(args []any, before ...any) *Stmt {
	n := sizeFor(len(args) / 2)
	return t[n].with(append(before, filledPairs(args, sizes[n])...)...)
}

// filledPairs repeats the first two of args until there are n pairs.
func filledPairs(args []any, n int) []any {
	for len(args) < 2*n {
		args = append(args, args[0], args[1])
	}
	return args
}

// bulkTexts are the statements of a [bulk]: its reads, once the rows of the
// queues are locked, and its writes.
type bulkTexts struct {
	lock, state, held, waiting    bulkText
	extend, extendHead, updateDue bulkText
	subtract, clearHead           bulkText
	oneState, oneWaiting          bulkText
}

// stateText reads, for each queue, the data that decide whether something is
// due in it: when the first holder in the ticket table expires; when the first
// waiting place expires, and its units; the latest time at which any of these
// tickets was renewed, which is in the future only if the clock was set back;
// and the holder's metadata.
const stateText = `
	SELECT l.k,
		coalesce((SELECT min(until) FROM {ticket} WHERE line = l.k AND place <= l.turn), 9223372036854775807),
		coalesce((SELECT min(until) FROM {ticket} WHERE line = l.k AND place = l.front), 9223372036854775807),
		coalesce((SELECT max(units) FROM {ticket} WHERE line = l.k AND place = l.front), 0),
		coalesce((SELECT max(until - keep) FROM {ticket} WHERE line = l.k AND place <= coalesce(l.front, l.turn)), 0),
		coalesce((SELECT meta FROM {ticket} WHERE line = l.k AND place <= l.turn ORDER BY place, seq LIMIT 1), '')
	FROM (
		SELECT k, turn, (SELECT min(place) FROM {ticket} WHERE line = k AND place > turn) AS front
		FROM {line} WHERE k IN ({list})
	) l`

// waitingText is oneWaiting for any number of tickets, in any number of queues.
//
// Placeholders: pairs of keys and ids.
var waitingText = `
	SELECT line, ` + ticketColumns + `, ahead,
		coalesce((SELECT max(b.until) FROM {ticket} b WHERE b.line = w.line AND b.place = w.pred), 0),
		coalesce((SELECT max(b.until - b.keep) FROM {ticket} b WHERE b.line = w.line AND b.place = w.pred), 0)
	FROM (
		SELECT t.*,
			CASE WHEN t.place - l.turn > ` + countMaxText + ` THEN -1 ELSE (
				SELECT count(DISTINCT c.place) FROM {ticket} c WHERE c.line = t.line AND c.place > l.turn AND c.place < t.place
			) END AS ahead,
			(SELECT max(c.place) FROM {ticket} c WHERE c.line = t.line AND c.place > l.turn AND c.place < t.place) AS pred
		FROM {ticket} t JOIN {line} l ON l.k = t.line
		WHERE {pairs}
	) w`

// newBulkText returns a statement for each of the sizes up to bulkMax.
func newBulkText(d *Dialect, s string) (t bulkText) {
	for i, n := range sizes {
		if n > bulkMax {
			break
		}
		s := s
		if n == 1 {
			// A statement about a single queue may wait for its lock.
			s = strings.Replace(s, "{skip}", "{lock}", 1)
		}
		t[i] = d.text(n, s)
	}
	return t
}

func newBulkTexts(d *Dialect) bulkTexts {
	sized := func(s string) bulkText { return newBulkText(d, s) }
	return bulkTexts{
		lock:       sized("SELECT k, name, " + strings.Join(rowColumns, ", ") + " FROM {line} WHERE k IN ({list}) ORDER BY k{skip}"),
		state:      sized(stateText),
		held:       sized("SELECT line, " + ticketColumns + " FROM {ticket} WHERE {pairs}"),
		waiting:    sized(waitingText),
		extend:     sized("UPDATE {ticket} SET until = {max}(until, ? + keep) WHERE {pairs}"),
		extendHead: sized("UPDATE {line} SET h_until = {max}(h_until, ? + h_keep) WHERE k IN ({list})"),
		updateDue: sized(`UPDATE {line} SET due = coalesce(
			(SELECT min(until) FROM {ticket} WHERE line = k AND place <= turn), 9223372036854775807) WHERE k IN ({list})`),
		subtract:  sized("UPDATE {line} SET held = held - ?, used = used - ?, waiting = waiting - ? WHERE k IN ({list})"),
		clearHead: sized("UPDATE {line} SET h_id = '', h_owner = '', h_wake = '', h_meta = '' WHERE k IN ({list})"),

		oneState:   oneState().union(d),
		oneWaiting: oneWaiting().union(d),
	}
}
