package mysqllock

import (
	"context"
	sqldriver "database/sql/driver"
	"strings"
	"sync/atomic"

	"github.com/holdfast-go/holdfast/internal/sqlline"
)

// Reading the text of a statement takes the server longer than doing what it
// says. On connections of our own, statements that most requests consist of and
// that travel alone are therefore prepared, each once, when a connection sends it
// for the first time. In a pool that was given nothing is: others use it.
//
// MySQL gives the arguments of a prepared statement types of its own, since
// 8.0.22, which was not tested; so it is MariaDB alone where this is done.
//
// A server that will not prepare any more, a proxy that cannot, or one that went
// on to a connection of another session, says so before anything is done. Such a
// statement then travels as text, on this connection for good.

// opener makes connections that prepare.
type opener struct {
	sqldriver.Connector
	often map[string]bool // the texts that are worth it
	maria atomic.Pointer[bool]
}

// prepares sets the texts. To be called before the first connection is made.
func (o *opener) prepares(lines *sqlline.Lines) {
	o.often = make(map[string]bool)
	for _, text := range lines.Often() {
		o.often[text.SQL] = true
	}
}

// Connect implements [sqldriver.Connector].
func (o *opener) Connect(ctx context.Context) (sqldriver.Conn, error) {
	c, err := o.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	if c, ok := c.(plainConn); ok && o.knows(ctx, c) {
		return &preparing{plainConn: c, often: o.often, stmts: make(map[string]preparedStmt)}, nil
	}
	return c, nil
}

// knows says whether the server is MariaDB. It asks once. A connection that
// does not answer is used as it is: the first request on it finds out why.
func (o *opener) knows(ctx context.Context, c plainConn) bool {
	if maria := o.maria.Load(); maria != nil {
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
	maria := strings.Contains(string(version), "MariaDB")
	o.maria.Store(&maria)
	return maria
}

// plainConn is what the client library's connections can do.
type plainConn interface {
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

// preparedStmt is what its statements can do.
type preparedStmt interface {
	sqldriver.Stmt
	sqldriver.StmtExecContext
	sqldriver.StmtQueryContext
}

// preparing is a connection that prepares what it sends often.
type preparing struct {
	plainConn
	often map[string]bool
	stmts map[string]preparedStmt // nil for a text that cannot be prepared here
}

// ExecContext implements [sqldriver.ExecerContext].
func (c *preparing) ExecContext(ctx context.Context, text string, args []sqldriver.NamedValue) (sqldriver.Result, error) {
	return send(ctx, c, text, args, c.plainConn.ExecContext, preparedStmt.ExecContext)
}

// QueryContext implements [sqldriver.QueryerContext].
func (c *preparing) QueryContext(ctx context.Context, text string, args []sqldriver.NamedValue) (sqldriver.Rows, error) {
	return send(ctx, c, text, args, c.plainConn.QueryContext, preparedStmt.QueryContext)
}

// send sends a statement prepared, where that can be, and as text otherwise.
func send[A any](ctx context.Context, c *preparing, text string, args []sqldriver.NamedValue,
	plainly func(context.Context, string, []sqldriver.NamedValue) (A, error),
	prepared func(preparedStmt, context.Context, []sqldriver.NamedValue) (A, error)) (answer A, err error) {
	s, err := c.prepared(ctx, text)
	if err != nil {
		return answer, err
	}
	if s != nil {
		if answer, err = prepared(s, ctx, args); !c.forgot(text, err) {
			return answer, err
		}
	}
	return plainly(ctx, text, args)
}

// prepared returns the statement of a text, or nil if it is to travel as text.
func (c *preparing) prepared(ctx context.Context, text string) (preparedStmt, error) {
	if !c.often[text] {
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
		return nil, sqldriver.ErrBadConn // it broke, and nothing was done
	}
	c.stmts[text] = s
	return s, nil
}

// The server's numbers of errors of statements that it knows no more, or not in
// time for what was changed. It has done nothing of them.
const (
	unknownStmt = 1243
	staleStmt   = 1615
)

// forgot says whether a statement has to travel as text after all.
func (c *preparing) forgot(text string, err error) bool {
	if n := code(err); n != unknownStmt && n != staleStmt {
		return false
	}
	if s := c.stmts[text]; s != nil {
		_ = s.Close()
	}
	c.stmts[text] = nil
	return true
}
