package stock

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

const (
	// purgeEvery is the number of receipts after which, on average, old ones are
	// deleted, and purgeMost the number of these at a time. Twice as many go as
	// come, so none remain for long.
	purgeEvery = 256
	purgeMost  = 512
)

// sqlShard is a shard's row, and the rows of some sales, during a transaction
// that has locked the shard's row. Nobody else writes rows of this shard
// meanwhile.
type sqlShard struct {
	store *sqlServers
	conn  *sqlConn
	at    shard
	id    int64
	now   int64
	shard *memoryShard // nil: there is none
	was   sqlRow
	found map[string]sqlReceipt // rows of the sales, as they are
	sales []string
}

// sqlRow is the columns of a shard that change.
type sqlRow struct {
	epoch, version, free, held, sold, back, more int64
	transfers, directory                         string
}

// sqlReceipt is the columns of a receipt.
type sqlReceipt struct {
	Receipt
	open int64 // 1: a reservation
	ends int64
}

// transfers is the JSON text of a shard's transfers.
type transfers struct {
	Last map[int]int64    `json:",omitempty"` // the number of the last transfer to each shard
	Out  map[int][2]int64 `json:",omitempty"` // number and units of transfers under way
	In   map[int]int64    `json:",omitempty"` // the number of the last transfer accepted
}

// manner is the way in which a request reads a shard.
type manner int

const (
	readAll   manner = iota // everything, with the shard's row locked
	readUnits               // enough for a batch, with the shard's row locked
	readAlone               // enough to find a receipt, without a lock
)

// columns returns those of a shard that not every request reads.
func (m manner) columns() string {
	if m == readAll {
		return "s.transfers, s.directory"
	}
	return "NULL, NULL"
}

// readShard reads a shard's row and the rows of sales.
func (s *sqlServers) readShard(ctx context.Context, c *sqlConn, at shard, as manner, sales ...string) (*sqlShard, error) {
	r := &sqlShard{store: s, conn: c, at: at, sales: sales, found: map[string]sqlReceipt{}}
	reading := ""
	lock := c.kind.statement().add("SELECT 1 FROM "+s.prefix+"shard WHERE sku = ? AND i = ? FOR UPDATE", at.sku, at.i)
	if as != readAlone {
		reading = c.kind.reading
		if err := c.begin(ctx, lock.String()); err != nil {
			return nil, err
		}
	}
	q := c.kind.query().add("SELECT " + c.kind.now + ", s.id, s.epoch, s.version, s.free, s.held, s.sold, s.back, s.more, " + as.columns() +
		", r.sale, r.state, r.units, r.open, r.ends FROM " + s.prefix + "shard s LEFT JOIN " + s.prefix + "receipt r ON r.shard = s.id AND r.sale IN (")
	for i := range roundUp(len(sales)) {
		if i > 0 {
			q.add(", ")
		}
		q.add("?", sales[min(i, len(sales)-1)])
	}
	q.add(") WHERE s.sku = ? AND s.i = ?"+reading, at.sku, at.i)
	rows, err := c.QueryContext(ctx, q.String(), q.args...)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		if err := r.scan(rows); err != nil {
			return nil, err
		}
	}
	if err := rows.Err(); err != nil || r.shard != nil {
		return r, err
	}
	_ = rows.Close()
	return r, c.QueryRowContext(ctx, "SELECT "+c.kind.now).Scan(&r.now)
}

// roundUp bounds the number of different statements: each is prepared.
func roundUp(n int) int {
	for _, size := range []int{1, 4, 16, 64} {
		if n <= size {
			return size
		}
	}
	return sqlBatch
}

func (r *sqlShard) scan(rows *sql.Rows) error {
	var moves, dir, sale []byte
	var state sql.NullString
	var units, open, ends sql.NullInt64
	w := &r.was
	err := rows.Scan(&r.now, &r.id, &w.epoch, &w.version, &w.free, &w.held, &w.sold, &w.back, &w.more, &moves, &dir, &sale, &state, &units, &open, &ends)
	if err != nil {
		return err
	}
	if r.shard == nil {
		if r.shard, err = w.read(moves, dir); err != nil {
			return fmt.Errorf("the row of shard %d of %q: %w", r.at.i, r.at.sku, err)
		}
	}
	if !state.Valid {
		return nil
	}
	f := sqlReceipt{Receipt{State(state.String), units.Int64}, open.Int64, ends.Int64}
	r.found[string(sale)] = f
	if f.open == 1 {
		r.shard.held[string(sale)] = hold{f.Receipt, f.ends}
	} else {
		r.shard.book[string(sale)] = entry{f.Receipt, f.ends}
	}
	return nil
}

// read makes a shard of its row.
func (w *sqlRow) read(moves, dir []byte) (*memoryShard, error) {
	w.transfers, w.directory = string(moves), string(dir)
	c := newMemoryShard()
	c.epoch, c.dir = w.epoch, dir
	c.look.version, c.look.free, c.look.held, c.look.sold, c.look.back, c.look.more = w.version, w.free, w.held, w.sold, w.back, w.more
	var t transfers
	if len(moves) > 0 {
		if err := json.Unmarshal(moves, &t); err != nil {
			return nil, err
		}
	}
	for peer, n := range t.Last {
		c.seq[peer] = n
	}
	for peer, out := range t.Out {
		c.look.out[peer] = moved{seq: out[0], units: out[1]}
		c.transit += out[1]
	}
	for peer, n := range t.In {
		c.look.in[peer] = n
	}
	return c, nil
}

// row makes a row of a shard. Columns that were not read stay as they are.
func (r *sqlShard) row() sqlRow {
	c := r.shard
	l := c.look
	w := sqlRow{c.epoch, l.version, l.free, l.held, l.sold, l.back, l.more, r.was.transfers, r.was.directory}
	if r.id != 0 && w.transfers == "" {
		return w
	}
	t := transfers{Last: c.seq, Out: map[int][2]int64{}, In: l.in}
	for peer, out := range l.out {
		t.Out[peer] = [2]int64{out.seq, out.units}
	}
	text, err := json.Marshal(t)
	if err != nil {
		panic(err) // numbers always have a text
	}
	w.transfers, w.directory = string(text), string(c.dir)
	return w
}

// readLastEnd notes when the last reservation ends.
func (r *sqlShard) readLastEnd(ctx context.Context) error {
	if r.shard == nil {
		return nil
	}
	var due sql.NullInt64
	q := r.conn.kind.query().add("SELECT max(ends) FROM "+r.store.prefix+"receipt WHERE shard = ? AND open = 1", r.id)
	err := r.conn.QueryRowContext(ctx, q.String(), q.args...).Scan(&due)
	if err == nil && due.Valid {
		r.shard.held[""] = hold{due: due.Int64} // no sale has this id
	}
	return err
}

// lapse gives back the units of all reservations whose lease has ended, where
// memory would: there, lapse goes through the reservations one by one.
func (r *sqlShard) lapse(ctx context.Context, q request) error {
	c := r.shard
	_, held := c.held[q.sale]
	short := (q.op == opSell || q.op == opPull) && c.look.free < q.units
	if q.op != opLook && !held && !short {
		return nil
	}
	var due, units int64
	t := r.store.prefix + "receipt"
	read := r.conn.kind.query().add("SELECT count(*), coalesce(sum(CASE WHEN state = 'r' THEN units ELSE 0 END), 0) FROM "+t+
		" WHERE shard = ? AND open = 1 AND ends <= ?", r.id, r.now)
	err := r.conn.QueryRowContext(ctx, read.String(), read.args...).Scan(&due, &units)
	if err != nil || due == 0 {
		return err
	}
	for _, s := range []*sqlText{
		r.conn.kind.statement().add("DELETE FROM "+t+" WHERE shard = ? AND open = 1 AND ends <= ? AND state = 'l'", r.id, r.now),
		r.conn.kind.statement().add("UPDATE "+t+" SET state = 'l', ends = ? WHERE shard = ? AND open = 1 AND ends <= ?", r.now+q.keep, r.id, r.now),
	} {
		if _, err := r.conn.ExecContext(ctx, s.String()); err != nil {
			return err
		}
	}
	c.look.free += units
	c.look.held -= units
	c.look.version++
	if h, ok := c.held[q.sale]; ok && h.due <= r.now {
		delete(c.held, q.sale)
		delete(r.found, q.sale)
		if h.State == Reserved {
			h.State, h.due = Lapsed, r.now+q.keep
			c.held[q.sale] = h
			r.found[q.sale] = sqlReceipt{h.Receipt, 1, h.due}
		}
	}
	return nil
}

// write writes what has changed, and commits.
func (r *sqlShard) write(ctx context.Context) error {
	if r.shard == nil {
		return r.conn.end(ctx)
	}
	var all []string
	now, t := r.row(), r.store.prefix
	switch s := r.conn.kind.statement(); {
	case r.id == 0:
		s.add("INSERT INTO "+t+"shard (sku, i, epoch, version, free, held, sold, back, more, transfers, directory) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
			r.at.sku, r.at.i, now.epoch, now.version, now.free, now.held, now.sold, now.back, now.more, now.transfers, now.directory)
		all = append(all, s.String())
	case now != r.was:
		s.add("UPDATE "+t+"shard SET epoch = ?, version = ?, free = ?, held = ?, sold = ?, back = ?, more = ?",
			now.epoch, now.version, now.free, now.held, now.sold, now.back, now.more)
		if now.transfers != r.was.transfers {
			s.add(", transfers = ?", now.transfers)
		}
		if now.directory != r.was.directory {
			s.add(", directory = ?", now.directory)
		}
		all = append(all, s.add(" WHERE id = ?", r.id).String())
	}
	written, receipts := r.receipts()
	if written > 0 {
		all = append(all, receipts)
	}
	if written > rand.IntN(r.store.purgeEvery) {
		all = append(all, fmt.Sprintf(r.conn.kind.purge, t, r.id, r.now, purgeMost))
	}
	return r.conn.end(ctx, all...)
}

// receipts returns a statement that writes the receipts that have changed, and
// their number.
func (r *sqlShard) receipts() (n int, statement string) {
	s := r.conn.kind.statement()
	s.add("INSERT INTO " + r.store.prefix + "receipt (shard, sale, state, units, open, ends) VALUES ")
	ids := slices.Clone(r.sales)
	slices.SortFunc(ids, strings.Compare)
	for _, id := range slices.Compact(ids) {
		now, ok := sqlReceipt{}, false
		if e, in := r.shard.book[id]; in {
			now, ok = sqlReceipt{e.Receipt, 0, e.end}, true
		} else if h, in := r.shard.held[id]; in && id != "" {
			now, ok = sqlReceipt{h.Receipt, 1, h.due}, true
		}
		if !ok || r.found[id] == now {
			continue
		}
		if n++; n > 1 {
			s.add(", ")
		}
		s.add("(?, ?, '"+string(now.State)+"', ?, ?, ?)", r.id, id, now.Units, now.open, now.ends)
	}
	return n, s.add(r.conn.kind.upsert).String()
}
