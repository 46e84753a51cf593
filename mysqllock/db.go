package mysqllock

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"slices"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/sqlqueue"
)

// Limits of waits on the driver's own connections, in seconds: for a row that
// somebody else has locked, and for a table that is being altered.
const (
	rowLockTimeout   = 2
	tableLockTimeout = 5
)

// requestTime is the longest time that a request without a deadline waits for a
// connection and the server's answer. It is longer than a reachable server
// needs to give up.
const requestTime = 12 * time.Second

// maxLockTimeout is the longest time, in seconds, that a lone statement may
// wait for a row. An abandoned request may still wait at the server: after a
// longer wait it could take effect when its tombstone is gone.
const maxLockTimeout = 50

// idleMax is the longest time, in seconds, that the server lets a transaction
// of this driver be idle before it ends the connection: a process that was
// stopped inside a transaction must not keep a queue locked.
const idleMax = 2

const (
	textLevel = "SET TRANSACTION ISOLATION LEVEL READ COMMITTED"
	// textSession is the same for all transactions of a session.
	textSession = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED"
	// textLatestRows makes a statement of MariaDB lock the current version of a
	// row. With the default of servers since 11.6, a statement that has read
	// before is refused if the row was changed meanwhile (1020), also in READ
	// COMMITTED. Joins that meet in one queue would then fail, and a renewal of
	// many locks would fail with the one whose row is locked.
	textLatestRows = "SET SESSION innodb_snapshot_isolation = OFF"
	textIdle       = "SET SESSION wait_timeout = ?"
	textBegin      = "START TRANSACTION"
	textCommit     = "COMMIT"
	textRollback   = "ROLLBACK"
)

// database is the database of one client, on a pool of connections.
type database struct {
	pool   *sql.DB
	owned  bool // the driver made the pool
	opt    Options
	tables *sqlqueue.Tables         // its name is that of the wake-up connection's named lock
	mode   atomic.Pointer[sendMode] // how statements are sent, once that is known
	silent func()                   // is called when the server seems to be silent

	lastAnswer sqlqueue.Last // when the server last answered a request
	suspect    sqlqueue.Last // connections whose last use ended before may be dead, see trackedConn
}

// Auto implements [sqlqueue.DB]. A statement is a transaction of its own. It is
// right under every isolation level. But above READ COMMITTED, a join that
// waits for its queue would keep the store's row locked meanwhile, which all
// queues share. Auto therefore sends the level in the statement's packet where
// the session has another level. In a transaction around the statement Auto
// sends the level, too: in transactions of stricter levels MariaDB may report
// that a row was changed since the transaction began (1020, since 11.6).
func (d *database) Auto(ctx context.Context, s *sqlqueue.Stmt) error {
	ctx, cancel := sqlqueue.Within(ctx, requestTime)
	defer cancel()
	return d.inConn(ctx, func(c *conn) error {
		if !c.mode.explicitTx {
			if c.mode.setsLevel && c.mode.together && s.Text.Writes && s.Row == nil {
				return c.run(ctx, true, &item{text: textLevel}, itemOf(s))
			}
			return c.run(ctx, s.Text.Writes, itemOf(s))
		}
		err := c.run(ctx, false, &item{text: textLevel}, &item{text: textBegin}, itemOf(s))
		if err == nil {
			err = c.run(ctx, true, &item{text: textCommit})
		}
		if err != nil {
			c.rollback(ctx)
		}
		return err
	})
}

// Tx implements [sqlqueue.DB]. It sends START TRANSACTION with the first
// statements, and COMMIT with the last. It interrupts wake-up connections in
// the packet of the commit, after the commit.
//
// Messages for other clients are part of the transaction. If the server cannot
// write them (the disk is full, a right is missing), Tx repeats the transaction
// without them: a release must not depend on messages. The granted waiter then
// learns of its grant with its next renewal.
func (d *database) Tx(ctx context.Context, f func(sqlqueue.Tx) ([]*sqlqueue.Stmt, error)) error {
	ctx, cancel := sqlqueue.Within(ctx, requestTime)
	defer cancel()
	notifies := false
	err := d.tx(ctx, func(t sqlqueue.Tx) ([]*sqlqueue.Stmt, error) {
		last, err := f(t)
		notifies = slices.ContainsFunc(last, d.isNotification)
		return last, err
	})
	if !notifies || !undoneByServer(ctx, err) {
		return err
	}
	return d.tx(ctx, func(t sqlqueue.Tx) ([]*sqlqueue.Stmt, error) {
		last, err := f(t)
		return slices.DeleteFunc(last, d.isNotification), err
	})
}

func (d *database) tx(ctx context.Context, f func(sqlqueue.Tx) ([]*sqlqueue.Stmt, error)) error {
	return d.inConn(ctx, func(c *conn) error {
		t := &tx{c: c}
		last, err := f(t)
		if err == nil && t.began && len(last) == 0 && !t.wrote {
			// The transaction wrote nothing, so an answer to its end is not
			// needed.
			c.rollback(ctx)
			return nil
		}
		if err == nil && (t.began || len(last) > 0) {
			err = t.finish(ctx, last)
		}
		if err != nil && t.began {
			c.rollback(ctx)
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

// Do implements [sqlqueue.Tx].
func (t *tx) Do(ctx context.Context, stmts ...*sqlqueue.Stmt) error {
	items := t.begin()
	for _, s := range stmts {
		t.wrote = t.wrote || s.Text.Writes
		items = append(items, itemOf(s))
	}
	return t.c.run(ctx, false, items...)
}

// begin returns the statements that precede the first ones.
func (t *tx) begin() []*item {
	if t.began {
		return nil
	}
	t.began = true
	return []*item{{text: textLevel}, {text: textIdle, args: []any{t.c.mode.limit()}}, {text: textBegin}}
}

// finish sends the last statements and commits.
func (t *tx) finish(ctx context.Context, last []*sqlqueue.Stmt) error {
	items := t.begin()
	var interrupts []*item
	for _, s := range last {
		if isInterrupt(s) {
			interrupts = append(interrupts, itemOf(s))
		} else {
			items = append(items, itemOf(s))
		}
	}
	items = append(items, &item{text: textCommit}, &item{text: textIdle, args: []any{t.c.mode.idle}})
	if len(interrupts) == 0 {
		return t.c.run(ctx, true, items...)
	}
	// The row after the commit distinguishes an error of the commit from the
	// error of an interruption whose connection no longer exists.
	committed := false
	mark := &item{text: "SELECT 1", rows: true, row: func(func(...any) error) error { committed = true; return nil }}
	items = append(append(items, mark), interrupts[0])
	err := t.c.run(ctx, true, items...)
	if !committed {
		return err
	}
	for _, r := range interrupts[1:] {
		_ = t.c.run(ctx, false, r)
	}
	return nil
}

// conn is a connection of a pool while one request uses it.
type conn struct {
	*sql.Conn
	mode *sendMode
}

// rollback ends the transaction if it is still open. If that fails, it closes
// the connection, which also ends the transaction.
func (c *conn) rollback(ctx context.Context) {
	if ctx.Err() == nil && c.run(ctx, false, &item{text: textRollback}, &item{text: textIdle, args: []any{c.mode.idle}}) == nil {
		return
	}
	c.discard()
}

// discard closes the connection instead of giving it back to its pool.
func (c *conn) discard() {
	_ = c.Raw(func(any) error { return sqldriver.ErrBadConn })
}

// inConn runs f on a connection of the pool.
func (d *database) inConn(ctx context.Context, f func(*conn) error) error {
	if err := d.tables.CheckOpen(ctx); err != nil {
		return err
	}
	sc, err := d.pool.Conn(ctx)
	if err != nil {
		return d.notAcquired(ctx, err)
	}
	defer func() { _ = sc.Close() }()
	c := &conn{Conn: sc}
	if c.mode, err = d.findSendMode(ctx, c); err != nil {
		return err
	}
	began := time.Now()
	err = f(c)
	d.reactTo(c, err)
	switch {
	case err == nil || code(err) != 0:
		d.lastAnswer.Record(sqlqueue.InstantOf(time.Now()))
	case sqlqueue.Silent(ctx, began):
		d.afterSilence(sqlqueue.InstantOf(began))
	}
	return err
}

// afterSilence closes idle connections after one connection led nowhere since an
// instant: a device between this client and the server may have forgotten them. A
// hold must not be lost because it is renewed on one dead connection after the
// other. Connections that have answered since then stay, and so do the wake-ups if
// any has: the server is slow, for one that waits for a row or for all, and would
// have to serve new connections as well.
func (d *database) afterSilence(since sqlqueue.Instant) {
	d.suspect.Record(since)
	if d.lastAnswer.Load() < since {
		d.silent()
	}
}

// dropIdle closes the idle connections of the driver's own pool.
func (d *database) dropIdle() {
	d.pool.SetMaxIdleConns(-1)
	d.pool.SetMaxIdleConns(d.opt.conns())
}

// reactTo adapts the database to an error of a request.
func (d *database) reactTo(c *conn, err error) {
	switch n := code(err); {
	case n == noTable:
		// Somebody dropped a table: the next request creates it again.
		d.tables.Forget()
	case takesNoWrites(n):
		// New connections may lead to another server.
		c.discard()
		if d.owned {
			d.dropIdle()
		}
	}
}

// sendMode describes how statements are sent on the connections of a pool.
type sendMode struct {
	// together says that several statements are one packet with one answer.
	// This requires a client library that writes arguments into their text.
	together bool
	// galera says that the server belongs to a cluster in which several servers
	// take writes. A commit at another server may undo a transaction between
	// any two of its statements. MariaDB has then been seen to run the rest of
	// the packet, each statement by itself. If statements are sent one by one,
	// the next one fails.
	galera bool
	// explicitTx says that a lone statement needs a transaction: sessions do
	// not commit by themselves, or wait so long for a row that an abandoned
	// statement could take effect too late.
	explicitTx bool
	// setsLevel says that the sessions' isolation level is not READ COMMITTED.
	setsLevel bool
	// hex says that bytes are written in hex into the text of statements. MySQL
	// cannot display a running statement with bytes as the client library
	// writes them: then information_schema.processlist fails for everybody
	// (3854, since 9.7). MariaDB can display them, and prepares by the text,
	// see preparingConnector.
	hex bool
	// compounds says that contended requests are compound statements.
	compounds bool
	idle      int64 // wait_timeout of the sessions, in seconds
}

// limit returns the wait_timeout for the time of a transaction.
func (m *sendMode) limit() int64 { return min(m.idle, idleMax) }

// findSendMode examines a connection, once for the whole pool, whose
// connections have equal settings.
func (d *database) findSendMode(ctx context.Context, c *conn) (*sendMode, error) {
	if m := d.mode.Load(); m != nil {
		return m, nil
	}
	m := new(sendMode)
	c.mode = &sendMode{}
	var commits, lockTimeout int64
	version := ""
	settings := &item{text: "SELECT @@autocommit, @@innodb_lock_wait_timeout, @@wait_timeout, VERSION()", rows: true,
		row: func(scan func(...any) error) error { return scan(&commits, &lockTimeout, &m.idle, &version) }}
	const names = "'wsrep_on', 'tx_isolation', 'transaction_isolation'" // each server has some of these
	cluster := &item{text: "SHOW VARIABLES WHERE Variable_name IN (" + names + ")", rows: true, row: func(scan func(...any) error) error {
		var name, value string
		err := scan(&name, &value)
		if name == "wsrep_on" {
			m.galera = value == "ON"
		} else {
			m.setsLevel = value != "READ-COMMITTED"
		}
		return err
	}}
	if err := c.run(ctx, false, settings, cluster); err != nil {
		return nil, err
	}
	if commits == 0 { // the queries have begun a transaction
		if err := c.run(ctx, false, &item{text: textRollback}); err != nil {
			return nil, err
		}
	}
	m.hex = !isMariaDB(version)
	m.explicitTx = commits == 0 || lockTimeout > maxLockTimeout
	if !m.explicitTx && !m.galera {
		c.mode = &sendMode{together: true}
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
			m.together = n == 3
		case code(err) == 0:
			return nil, err
		}
	}
	m.compounds = d.owned && m.together && !m.setsLevel && hasCompounds(version)
	d.mode.Store(m)
	return m, nil
}

// sendMode calls findSendMode on a connection that it takes from the pool.
func (d *database) sendMode(ctx context.Context) (m *sendMode, err error) {
	ctx, cancel := sqlqueue.Within(ctx, requestTime)
	defer cancel()
	err = d.inConn(ctx, func(c *conn) error { m = c.mode; return nil })
	return m, err
}

// queryRow runs a query that returns one row, on a connection of the pool.
func (d *database) queryRow(ctx context.Context, query string, args []any, dest ...any) error {
	ctx, cancel := sqlqueue.Within(ctx, requestTime)
	defer cancel()
	return d.inConn(ctx, func(c *conn) error {
		found := false
		err := c.run(ctx, false, &item{text: query, args: args, rows: true, row: func(scan func(...any) error) error {
			found = true
			return scan(dest...)
		}})
		if err == nil && c.mode.explicitTx {
			err = c.run(ctx, false, &item{text: textRollback}) // the query has begun a transaction
		}
		if err == nil && !found {
			err = driver.Errorf(driver.Refused, "mysql: no answer to %s", query)
		}
		return err
	})
}
