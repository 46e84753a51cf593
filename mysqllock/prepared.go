package mysqllock

import (
	"context"
	sqldriver "database/sql/driver"
	"strings"
	"sync/atomic"

	"github.com/holdfast-go/holdfast/internal/sqlqueue"
)

// Parsing a statement takes the server longer than running it. On the driver's
// own connections, frequent statements that are sent alone are therefore
// prepared, each when a connection sends it for the first time. Nothing is
// prepared in a pool that was passed to New, because it has other users.
//
// Only statements for MariaDB are prepared: since 8.0.22 MySQL gives the
// arguments of a prepared statement types of its own, which was not tested.
//
// A server that refuses to prepare, a proxy that cannot, or a proxy that has
// switched to a connection of another session, reports an error before anything
// is done. From then on, this connection sends that statement as text.

// preparingConnector makes connections that prepare statements.
type preparingConnector struct {
	sqldriver.Connector
	frequent map[string]bool // the texts that are worth preparing
	suspect  *sqlqueue.Last  // see trackedConn
	mariaDB  atomic.Pointer[bool]
}

// serve sets for which database it makes connections. It must be called before the first
// connection is made.
func (o *preparingConnector) serve(d *database) {
	o.suspect = &d.suspect
	o.frequent = make(map[string]bool)
	for _, text := range d.tables.Queues.Frequent() {
		o.frequent[text.SQL] = true
	}
}

// Connect implements [sqldriver.Connector].
func (o *preparingConnector) Connect(ctx context.Context) (sqldriver.Conn, error) {
	c, err := o.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	if c, ok := c.(sqldriver.ExecerContext); ok {
		// The variables have different names on MySQL and MariaDB, so they
		// cannot be among those that the library sets. If this fails, each
		// statement sends its level, see sendMode.setsLevel.
		_, _ = c.ExecContext(ctx, textSession, nil)
	}
	conn, ok := c.(sqlConn)
	if !ok {
		return c, nil
	}
	maria := o.isMariaDB(ctx, conn)
	conn = &trackedConn{sqlConn: conn, suspect: o.suspect}
	if maria {
		_, _ = conn.ExecContext(ctx, textCompounds, nil)  // without them, no compound decides
		_, _ = conn.ExecContext(ctx, textLatestRows, nil) // servers before 10.6.18 neither have nor need the variable
		conn = &preparingConn{sqlConn: conn, frequent: o.frequent, stmts: make(map[string]preparedStmt)}
	}
	return conn, nil
}

// isMariaDB reports whether the server is MariaDB. It asks once. A connection
// that does not answer is used as it is: the first request on it meets the
// reason.
func (o *preparingConnector) isMariaDB(ctx context.Context, c sqlConn) bool {
	if maria := o.mariaDB.Load(); maria != nil {
		return *maria
	}
	rows, err := c.QueryContext(ctx, "SELECT VERSION()", nil)
	if err != nil {
		return false
	}
	defer func() { _ = rows.Close() }()
	answer := make([]sqldriver.Value, 1)
	if rows.Next(answer) != nil {
		return false
	}
	version, _ := answer[0].([]byte)
	maria := isMariaDB(string(version))
	o.mariaDB.Store(&maria)
	return maria
}

// isMariaDB reports whether a server's version names MariaDB.
func isMariaDB(version string) bool { return strings.Contains(version, "MariaDB") }

// sqlConn is the set of methods of the client library's connections.
type sqlConn interface {
	sqldriver.Conn
	sqldriver.ConnBeginTx
	sqldriver.ConnPrepareContext
	sqldriver.ExecerContext
	sqldriver.NamedValueChecker
	sqldriver.Pinger
	sqldriver.QueryerContext
	sqldriver.SessionResetter
	sqldriver.Validator
}

// preparedStmt is the set of methods of its statements.
type preparedStmt interface {
	sqldriver.Stmt
	sqldriver.StmtExecContext
	sqldriver.StmtQueryContext
}

// preparingConn is a connection that prepares its frequent statements.
type preparingConn struct {
	sqlConn
	frequent map[string]bool
	stmts    map[string]preparedStmt // nil for a text that cannot be prepared here
}

// ExecContext implements [sqldriver.ExecerContext].
func (c *preparingConn) ExecContext(ctx context.Context, text string, args []sqldriver.NamedValue) (sqldriver.Result, error) {
	return send(ctx, c, text, args, c.sqlConn.ExecContext, preparedStmt.ExecContext)
}

// QueryContext implements [sqldriver.QueryerContext].
func (c *preparingConn) QueryContext(ctx context.Context, text string, args []sqldriver.NamedValue) (sqldriver.Rows, error) {
	return send(ctx, c, text, args, c.sqlConn.QueryContext, preparedStmt.QueryContext)
}

// send sends a statement prepared if possible, and as text otherwise.
func send[A any](ctx context.Context, c *preparingConn, text string, args []sqldriver.NamedValue,
	asText func(context.Context, string, []sqldriver.NamedValue) (A, error),
	prepared func(preparedStmt, context.Context, []sqldriver.NamedValue) (A, error)) (answer A, err error) {
	s, err := c.prepared(ctx, text)
	if err != nil {
		return answer, err
	}
	if s != nil {
		if answer, err = prepared(s, ctx, args); !c.mustSendText(text, err) {
			return answer, err
		}
	}
	if isCompound(text) { // a server or a proxy that prepares none may not know it either
		return answer, errNotPrepared
	}
	return asText(ctx, text, args)
}

// prepared returns the prepared statement of a text, or nil if the text must be
// sent as it is.
func (c *preparingConn) prepared(ctx context.Context, text string) (preparedStmt, error) {
	if !c.frequent[text] {
		return nil, nil
	}
	s, asked := c.stmts[text]
	if asked {
		return s, nil
	}
	p, err := c.PrepareContext(ctx, text)
	switch {
	case err == nil:
		s, _ = p.(preparedStmt)
	case code(err) == 0:
		return nil, sqldriver.ErrBadConn // the connection broke before anything was done
	}
	c.stmts[text] = s
	return s, nil
}

// The server's error numbers for a prepared statement that it no longer has, or
// that it could not prepare again in time after a change. It has not run such a
// statement.
const (
	unknownStmt = 1243
	staleStmt   = 1615
)

// mustSendText reports whether a statement must be sent as text after all.
func (c *preparingConn) mustSendText(text string, err error) bool {
	if n := code(err); n != unknownStmt && n != staleStmt {
		return false
	}
	if s := c.stmts[text]; s != nil {
		_ = s.Close()
	}
	c.stmts[text] = nil
	return true
}
