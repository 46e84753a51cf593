package mysqllock

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/sqlline"
)

// Connections that we open ourselves wait this many seconds for a row that
// somebody else has locked, and for a table that is being altered.
const (
	rowPatience   = 2
	tablePatience = 5
)

// longPatience is the longest that a statement may wait for a row, in seconds.
// A request that was given up may still wait at the server: beyond this it
// could take effect when nobody remembers any more that it must not.
const longPatience = 50

// idleMax is how many seconds the server lets a transaction of ours be idle
// before it ends the connection: a process that was stopped in the middle of
// one must not keep a line locked.
const idleMax = 2

const (
	textLevel = "SET TRANSACTION ISOLATION LEVEL READ COMMITTED"
	textIdle  = "SET SESSION wait_timeout = ?"
	textBegin = "START TRANSACTION"
	textDone  = "COMMIT"
	textUndo  = "ROLLBACK"
	textRing  = "KILL QUERY IS_USED_LOCK(?)"
)

// ring marks the statements that follow the commit.
var ring = &sqlline.Text{SQL: textRing, Writes: true}

// Auto implements [sqlline.DB]. A statement is a transaction of its own, and
// right under every isolation level.
func (d *Driver) Auto(ctx context.Context, s *sqlline.Stmt) error {
	return d.inConn(ctx, func(c *conn) error {
		if !c.way.whole {
			return c.run(ctx, s.Text.Writes, itemOf(s))
		}
		err := c.run(ctx, false, &item{text: textBegin}, itemOf(s))
		if err == nil {
			err = c.run(ctx, true, &item{text: textDone})
		}
		if err != nil {
			c.undo(ctx)
		}
		return err
	})
}

// Tx implements [sqlline.DB]. It sends its beginning with the first statements,
// and its end with the last. Bells ring in the packet of the commit, after it.
func (d *Driver) Tx(ctx context.Context, f func(sqlline.Tx) ([]*sqlline.Stmt, error)) error {
	return d.inConn(ctx, func(c *conn) error {
		t := &tx{c: c}
		last, err := f(t)
		if err == nil && t.began && len(last) == 0 && !t.wrote {
			// Nothing to write: whether the end arrives makes no difference.
			c.undo(ctx)
			return nil
		}
		if err == nil && (t.began || len(last) > 0) {
			err = t.finish(ctx, last)
		}
		if err != nil && t.began {
			c.undo(ctx)
		}
		return err
	})
}

// tx is an open transaction.
type tx struct {
	c     *conn
	began bool
	wrote bool
}

// Do implements [sqlline.Tx].
func (t *tx) Do(ctx context.Context, stmts ...*sqlline.Stmt) error {
	items := t.begin()
	for _, s := range stmts {
		t.wrote = t.wrote || s.Text.Writes
		items = append(items, itemOf(s))
	}
	return t.c.run(ctx, false, items...)
}

// begin returns what is sent before the first statements.
func (t *tx) begin() []*item {
	if t.began {
		return nil
	}
	t.began = true
	return []*item{{text: textLevel}, {text: textIdle, args: []any{t.c.way.limit()}}, {text: textBegin}}
}

// finish sends the last statements and commits.
func (t *tx) finish(ctx context.Context, last []*sqlline.Stmt) error {
	items := t.begin()
	var rings []*item
	for _, s := range last {
		if s.Text == ring {
			rings = append(rings, itemOf(s))
		} else {
			items = append(items, itemOf(s))
		}
	}
	items = append(items, &item{text: textDone}, &item{text: textIdle, args: []any{t.c.way.idle}})
	if len(rings) == 0 {
		return t.c.run(ctx, true, items...)
	}
	// The row that follows the commit tells an error of it from one of a bell
	// that nobody has any more.
	committed := false
	mark := &item{text: "SELECT 1", rows: true, row: func(func(...any) error) error { committed = true; return nil }}
	items = append(append(items, mark), rings[0])
	err := t.c.run(ctx, true, items...)
	if !committed {
		return err
	}
	for _, r := range rings[1:] {
		_ = t.c.run(ctx, false, r)
	}
	return nil
}

// conn is a connection of a pool while one request has it.
type conn struct {
	*sql.Conn
	way *way
}

// undo ends the transaction if it is still open. If that fails, the connection
// is closed, which ends it as well.
func (c *conn) undo(ctx context.Context) {
	if ctx.Err() == nil && c.run(ctx, false, &item{text: textUndo}, &item{text: textIdle, args: []any{c.way.idle}}) == nil {
		return
	}
	c.discard()
}

// discard closes the connection instead of giving it back to its pool.
func (c *conn) discard() {
	_ = c.Raw(func(any) error { return sqldriver.ErrBadConn })
}

// inConn runs f on a connection of the pool.
func (d *Driver) inConn(ctx context.Context, f func(*conn) error) error {
	if err := d.r.Before(ctx); err != nil {
		return err
	}
	sc, err := d.db.Conn(ctx)
	if err != nil {
		return d.notAcquired(ctx, err)
	}
	defer func() { _ = sc.Close() }()
	c := &conn{Conn: sc}
	if c.way, err = d.findWay(ctx, c); err != nil {
		return err
	}
	err = f(c)
	d.judge(c, err)
	return err
}

// judge draws conclusions from an error of a request.
func (d *Driver) judge(c *conn, err error) {
	switch n := code(err); {
	case n == noTable:
		// Somebody dropped a table: make it again when next asked.
		d.r.Forget()
	case takesNoWrites(n):
		// New connections may lead to another server.
		c.discard()
		if d.owned {
			d.db.SetMaxIdleConns(0)
			d.db.SetMaxIdleConns(d.opt.conns())
		}
	}
}

// way is how statements travel on the connections of a pool.
type way struct {
	// together says that several statements are one packet, and one answer.
	// The client library has to write arguments into their text for that.
	together bool
	// galera says that the server is one of a cluster in which several take
	// writes. A commit at another one may undo a transaction between any two of
	// its statements; MariaDB was seen to carry out the rest of the packet all
	// the same, each for itself. Sent one by one, the next statement fails.
	galera bool
	// whole says that a lone statement needs a transaction: sessions do not
	// commit by themselves, or wait so long for a row that a statement that
	// was given up could take effect too late.
	whole bool
	idle  int64 // wait_timeout of the sessions, in seconds
}

// limit is the wait_timeout while a transaction is open.
func (w *way) limit() int64 { return min(w.idle, idleMax) }

// findWay asks a connection what it can do, once for all of the pool, which
// have equal settings.
func (d *Driver) findWay(ctx context.Context, c *conn) (*way, error) {
	if w := d.way.Load(); w != nil {
		return w, nil
	}
	w := new(way)
	c.way = &way{}
	var commits, patience int64
	settings := &item{text: "SELECT @@autocommit, @@innodb_lock_wait_timeout, @@wait_timeout", rows: true,
		row: func(scan func(...any) error) error { return scan(&commits, &patience, &w.idle) }}
	cluster := &item{text: "SHOW VARIABLES LIKE 'wsrep_on'", rows: true, row: func(scan func(...any) error) error {
		var name, value string
		err := scan(&name, &value)
		w.galera = value == "ON"
		return err
	}}
	if err := c.run(ctx, false, settings, cluster); err != nil {
		return nil, err
	}
	w.whole = commits == 0 || patience > longPatience
	if !w.whole && !w.galera {
		c.way = &way{together: true}
		n := int64(0)
		add := func(scan func(...any) error) error {
			var v int64
			err := scan(&v)
			n += v
			return err
		}
		err := c.run(ctx, false, &item{"SELECT ?", []any{1}, true, add, nil}, &item{"SELECT ?", []any{2}, true, add, nil})
		switch {
		case err == nil:
			w.together = n == 3
		case code(err) == 0:
			return nil, err
		}
	}
	d.way.Store(w)
	return w, nil
}

// wayOf is findWay for who has no connection of the pool.
func (d *Driver) wayOf(ctx context.Context) (w *way, err error) {
	err = d.inConn(ctx, func(c *conn) error { w = c.way; return nil })
	return w, err
}

// ask runs a query of one row on a connection of the pool.
func (d *Driver) ask(ctx context.Context, query string, args []any, dest ...any) error {
	return d.inConn(ctx, func(c *conn) error {
		found := false
		err := c.run(ctx, false, &item{text: query, args: args, rows: true, row: func(scan func(...any) error) error {
			found = true
			return scan(dest...)
		}})
		if err == nil && !found {
			err = driver.Errorf(driver.Refused, "mysql: no answer to %s", query)
		}
		return err
	})
}
