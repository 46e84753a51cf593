package sqlitelock

import (
	"context"
	"database/sql"
	"os"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/sqlqueue"
)

// conn is the driver's connection to the file. Only the worker uses it. As a
// [sqlqueue.DB] it never waits: a request that finds the file locked by another
// process fails with errBusy as a whole, and the worker runs it again.
//
// A commit does not wait for the disk, because no other process can write
// meanwhile; flush waits for the disk afterwards. A flush includes every
// earlier commit of every process, so no answer depends on a change that a
// crash of the machine could undo.
//
// Statements run without a context, because an interrupted statement breaks the
// connection. They wait for the disk and for nothing else.
type conn struct {
	db       *sql.DB
	c        *sql.Conn
	stmts    map[*sqlqueue.Text]*sql.Stmt
	begin    *sql.Stmt
	commit   *sql.Stmt // COMMIT
	rollback *sql.Stmt // ROLLBACK

	inTx  bool
	wrote bool     // some changes are not flushed
	wal   *os.File // the journal, nil until the first flush
	path  string
	// failed is the first error since the transaction began, or since the
	// worker reset failed. A request for several tickets does not return their
	// errors, but the transaction is lost all the same.
	failed error
}

// Auto implements [sqlqueue.DB].
func (c *conn) Auto(_ context.Context, s *sqlqueue.Stmt) error { return c.run(s) }

// Tx implements [sqlqueue.DB]. Inside the worker's transaction f runs as a part
// of that transaction.
func (c *conn) Tx(ctx context.Context, f func(sqlqueue.Tx) ([]*sqlqueue.Stmt, error)) error {
	if c.inTx {
		last, err := f(c)
		if err != nil {
			return c.fail(err)
		}
		return c.Do(ctx, last...)
	}
	return c.inTransaction(func() error {
		last, err := f(c)
		if err != nil {
			return err
		}
		return c.Do(ctx, last...)
	})
}

// inTransaction runs f in a transaction. It rolls the transaction back if f, or
// a statement that f ran, failed.
func (c *conn) inTransaction(f func() error) error {
	if _, err := c.begin.Exec(); err != nil {
		return c.fail(classify(err, false))
	}
	c.inTx = true
	err := f()
	if err == nil {
		err = c.failed
	}
	if err == nil {
		if _, err = c.commit.Exec(); err == nil {
			c.inTx = false
			return nil
		}
		err = classify(err, true)
	}
	_, _ = c.rollback.Exec() // fails if SQLite has already rolled back
	c.inTx = false
	return c.fail(err)
}

// Do implements [sqlqueue.Tx].
func (c *conn) Do(_ context.Context, stmts ...*sqlqueue.Stmt) error {
	for _, s := range stmts {
		if err := c.run(s); err != nil {
			return err
		}
	}
	return nil
}

func (c *conn) run(s *sqlqueue.Stmt) error {
	if c.failed != nil {
		return c.failed
	}
	p, err := c.prepared(s.Text)
	if err != nil {
		return c.fail(classify(err, false))
	}
	if s.Row == nil {
		done, err := p.Exec(s.Values()...)
		if err == nil && s.Text.Writes {
			n, _ := done.RowsAffected()
			c.wrote = c.wrote || n > 0
		}
		return c.fail(classify(err, !c.inTx))
	}
	rows, err := p.Query(s.Values()...)
	if err != nil {
		return c.fail(classify(err, !c.inTx))
	}
	// Outside a transaction the statement commits after its last row. So the
	// rows are read to the end, where errors appear.
	var rowErr error
	for rows.Next() {
		c.wrote = c.wrote || s.Text.Writes // each row returned was changed
		if rowErr == nil {
			rowErr = s.Row(rows.Scan)
		}
	}
	err = rows.Err()
	if closed := rows.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return c.fail(classify(err, !c.inTx))
	}
	return c.fail(driver.Wrap(driver.Refused, rowErr))
}

// flush waits until all commits are on the disk. SQLite has no locks on the
// journal file, so flush may open and close it.
func (c *conn) flush() (err error) {
	if !c.wrote {
		return nil
	}
	if c.wal == nil {
		if c.wal, err = os.Open(c.path + "-wal"); err != nil {
			return c.fail(driver.Wrap(driver.Unknown, err))
		}
	}
	if err = c.wal.Sync(); err != nil {
		return c.fail(driver.Wrap(driver.Unknown, err))
	}
	c.wrote = false
	return nil
}

func (c *conn) fail(err error) error {
	if err != nil && c.failed == nil {
		c.failed = err
	}
	return err
}

func (c *conn) prepared(t *sqlqueue.Text) (*sql.Stmt, error) {
	if p := c.stmts[t]; p != nil {
		return p, nil
	}
	p, err := c.c.PrepareContext(context.Background(), t.SQL)
	if err == nil {
		c.stmts[t] = p
	}
	return p, err
}

// close closes the statements, the journal and the connection.
func (c *conn) close() error {
	for _, p := range c.stmts {
		_ = p.Close()
	}
	for _, p := range []*sql.Stmt{c.begin, c.commit, c.rollback} {
		if p != nil {
			_ = p.Close()
		}
	}
	if c.wal != nil {
		_ = c.wal.Close()
	}
	if c.c != nil {
		_ = c.c.Close()
	}
	return c.db.Close()
}
