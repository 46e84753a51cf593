package sqlqueue

import (
	"slices"
	"strings"
	"sync"
)

// oneQueue is a statement of a [bulk] about one queue and at most one waiter in it, or a
// part of one about several, for dialects with ConstantBounds. It names the queue, and the
// ticket, by its arguments wherever it reads: with bounds that come from another row the
// database would read all of the queue.
type oneQueue struct {
	sql  string
	args []byte // for each placeholder: 'k' for the queue's key, 'i' for the ticket's id
}

// newOneQueue replaces the words for values by the subqueries that read them.
//
//	{turn}  the last place that holds
//	{front} the first waiting place
//	{own}   the place of the ticket
//	{pred}  the waiting place directly before it
func newOneQueue(s string) (q oneQueue) {
	s = strings.NewReplacer(
		"{front}", "(SELECT place FROM {ticket} WHERE line = {key} AND place > {turn} ORDER BY place LIMIT 1)",
		"{pred}", "(SELECT place FROM {ticket} WHERE line = {key} AND place > {turn} AND place < {own} ORDER BY place DESC LIMIT 1)",
	).Replace(s)
	s = strings.NewReplacer(
		"{turn}", "(SELECT turn FROM {line} WHERE k = {key})",
		"{own}", "(SELECT place FROM {ticket} WHERE line = {key} AND id = {id})",
	).Replace(s)
	var b strings.Builder
	for s != "" {
		i := strings.IndexByte(s, '{')
		if i < 0 {
			i = len(s)
		}
		b.WriteString(s[:i])
		s = s[i:]
		for word, arg := range map[string]byte{"{key}": 'k', "{id}": 'i'} {
			if rest, ok := strings.CutPrefix(s, word); ok {
				b.WriteByte('?')
				q.args, s = append(q.args, arg), rest
			}
		}
		if strings.HasPrefix(s, "{") { // a word of the dialect
			b.WriteByte('{')
			s = s[1:]
		}
	}
	q.sql = strings.TrimSpace(b.String())
	return q
}

// unionMax is the greatest number of tickets in one statement.
const unionMax = 64

// union returns the texts of q for several tickets, for each of the sizes up to unionMax.
// They are nil where the dialect does not need them.
func (q oneQueue) union(d *Dialect) (t bulkText) {
	for i, n := range sizes {
		if d.ConstantBounds && n <= unionMax {
			t[i] = d.text(1, strings.TrimSuffix(strings.Repeat(q.sql+" UNION ALL ", n), " UNION ALL "))
		}
	}
	return t
}

// each returns statements t, which are q in a dialect, for pairs of keys and ids.
func (q oneQueue) each(t *bulkText, pairs []any) (stmts []*Stmt) {
	for some := range slices.Chunk(pairs, 2*unionMax) {
		n := sizeFor(len(some) / 2)
		var args []any
		for pair := range slices.Chunk(filledPairs(slices.Clone(some), sizes[n]), 2) {
			for _, a := range q.args {
				if a == 'i' {
					args = append(args, pair[1])
				} else {
					args = append(args, pair[0])
				}
			}
		}
		stmts = append(stmts, t[n].with(args...))
	}
	return stmts
}

// oneState is stateText for one queue. MariaDB searches no index between bounds that
// follow from {front}: the last place that may hold and the first that waits are read
// apart.
var oneState = sync.OnceValue(func() oneQueue {
	return newOneQueue(`
	SELECT k,
		coalesce((SELECT min(until) FROM {ticket} WHERE line = {key} AND place <= {turn}), 9223372036854775807),
		coalesce((SELECT min(until) FROM {ticket} WHERE line = {key} AND place = {front}), 9223372036854775807),
		coalesce((SELECT max(units) FROM {ticket} WHERE line = {key} AND place = {front}), 0),
		{max}(coalesce((SELECT max(until - keep) FROM {ticket} WHERE line = {key} AND place <= {turn}), 0),
			coalesce((SELECT max(until - keep) FROM {ticket} WHERE line = {key} AND place = {front}), 0)),
		coalesce((SELECT meta FROM {ticket} WHERE line = {key} AND place <= {turn} ORDER BY place, seq LIMIT 1), '')
	FROM {line} WHERE k = {key}`)
})

// oneWaiting reads a waiting ticket of one queue. It adds the number of waiting places
// before its own, or -1 where they are too many to be counted (see
// [queueRow.distance]), and when the place directly before it expires and was renewed,
// or 0 for the first.
var oneWaiting = sync.OnceValue(func() oneQueue {
	return newOneQueue(`
	SELECT line, ` + ticketColumns + `,
		CASE WHEN place - {turn} > ` + countMaxText + ` THEN -1 ELSE (
			SELECT count(DISTINCT place) FROM {ticket}
			WHERE line = {key} AND place > {turn} AND place >= {own} - ` + countMaxText + ` AND place < {own}
		) END,
		coalesce((SELECT max(until) FROM {ticket} WHERE line = {key} AND place = {pred}), 0),
		coalesce((SELECT max(until - keep) FROM {ticket} WHERE line = {key} AND place = {pred}), 0)
	FROM {ticket} WHERE line = {key} AND id = {id}`)
})
