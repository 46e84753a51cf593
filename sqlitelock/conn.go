package sqlitelock

import (
	"context"
	"database/sql"
	"os"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/sqlline"
)

// conn is the driver's connection to the file, used by the worker only. As a
// [sqlline.DB] it never waits: a request that finds the file locked by another
// process fails with errBusy as a whole, and the worker runs it again.
//
// A commit does not wait for the disk, since nobody else can write meanwhile;
// flush does, afterwards. What one process has flushed takes along everything
// that was committed before, by whomever, so nobody is ever answered on the
// ground of something that a crash of the machine could undo.
//
// Statements run without a context, because one that is interrupted takes the
// connection with it. They wait for the disk and for nothing else.
type conn struct {
	db    *sql.DB
	c     *sql.Conn
	stmts map[*sqlline.Text]*sql.Stmt
	begin *sql.Stmt
	done  *sql.Stmt // COMMIT
	undo  *sql.Stmt // ROLLBACK

	inTx  bool
	wrote bool     // something that was not flushed
	wal   *os.File // the journal, once something was written
	path  string
	// failed is the first error since the transaction began, or since the
	// worker reset it. Requests that answer for several tickets do not return
	// their errors, but the transaction is lost all the same.
	failed error
}

// Auto implements [sqlline.DB].
func (c *conn) Auto(_ context.Context, s *sqlline.Stmt) error { return c.run(s) }

// Tx implements [sqlline.DB]. Inside the worker's transaction f runs as a part
// of it.
func (c *conn) Tx(ctx context.Context, f func(sqlline.Tx) ([]*sqlline.Stmt, error)) error {
	if c.inTx {
		last, err := f(c)
		if err != nil {
			return c.fail(err)
		}
		return c.Do(ctx, last...)
	}
	return c.inside(func() error {
		last, err := f(c)
		if err != nil {
			return err
		}
		return c.Do(ctx, last...)
	})
}

// inside runs f in a transaction, and rolls it back if f, or a statement that
// f ran, failed.
func (c *conn) inside(f func() error) error {
	if _, err := c.begin.Exec(); err != nil {
		return c.fail(classify(err, false))
	}
	c.inTx = true
	err := f()
	if err == nil {
		err = c.failed
	}
	if err == nil {
		if _, err = c.done.Exec(); err == nil {
			c.inTx = false
			return nil
		}
		err = classify(err, true)
	}
	_, _ = c.undo.Exec() // fails if SQLite has rolled back by itself
	c.inTx = false
	return c.fail(err)
}

// Do implements [sqlline.Tx].
func (c *conn) Do(_ context.Context, stmts ...*sqlline.Stmt) error {
	for _, s := range stmts {
		if err := c.run(s); err != nil {
			return err
		}
	}
	return nil
}

func (c *conn) run(s *sqlline.Stmt) error {
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
	// Outside a transaction the statement commits when it has given its last
	// row, so it has to be read to the end, and that is where errors come from.
	var rowErr error
	for rows.Next() {
		c.wrote = c.wrote || s.Text.Writes // what it returns, it changed
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

// flush waits until what was committed is on the disk. The journal is a file
// that SQLite has no locks on, so that it may be opened and closed here.
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

func (c *conn) prepared(t *sqlline.Text) (*sql.Stmt, error) {
	if p := c.stmts[t]; p != nil {
		return p, nil
	}
	p, err := c.c.PrepareContext(context.Background(), t.SQL)
	if err == nil {
		c.stmts[t] = p
	}
	return p, err
}

// close closes everything that open opened.
func (c *conn) close() error {
	for _, p := range c.stmts {
		_ = p.Close()
	}
	for _, p := range []*sql.Stmt{c.begin, c.done, c.undo} {
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
