package stock

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// maxConns is the maximum number of connections of a client to one database. A
// shard's requests take turns, so more would wait for each other there.
const maxConns = 8

// sqlConns are a client's connections to one database. They are taken out of the
// program's pool and kept, because their sessions have settings.
type sqlConns struct {
	db    *sql.DB
	kind  *dialect
	slots chan struct{} // one for each connection in use

	mu     sync.Mutex
	free   []*sqlConn // the last is used next
	closed bool
}

// sqlConn is a connection, and a transaction on it.
type sqlConn struct {
	*sql.Conn
	kind   *dialect
	used   time.Time // when it became free
	commit bool      // the commit was sent, or a statement with it
}

// openConns asks a database for its kind.
func openConns(ctx context.Context, db *sql.DB) (*sqlConns, error) {
	ctx, cancel := answerWithin(ctx)
	defer cancel()
	c, err := db.Conn(ctx)
	if err != nil {
		return nil, classifySQL(ctx, err, false)
	}
	defer func() { _ = c.Close() }()
	kind, err := dialectOf(ctx, c)
	if _, ok := errors.AsType[*driver.Error](err); err != nil && !ok {
		err = classifySQL(ctx, err, false)
	}
	conns := maxConns
	if most := db.Stats().MaxOpenConnections; most > 0 {
		conns = min(conns, most)
	}
	return &sqlConns{db: db, kind: kind, slots: make(chan struct{}, conns)}, err
}

func answerWithin(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, answerLimit)
}

// do calls f with a connection. If f fails, or leaves a transaction open, the
// connection is closed, which undoes the transaction. A statement's error gets
// its class here.
func (s *sqlConns) do(ctx context.Context, f func(ctx context.Context, c *sqlConn) error) error {
	ctx, cancel := answerWithin(ctx)
	defer cancel()
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
	case <-ctx.Done():
		return driver.Wrap(driver.NotDone, context.Cause(ctx))
	}
	c, err := s.conn(ctx)
	if err != nil {
		return classifySQL(ctx, err, false)
	}
	c.commit = false
	if err = f(ctx, c); err != nil {
		discard(c.Conn)
		if _, ok := errors.AsType[*driver.Error](err); ok {
			return err
		}
		return classifySQL(ctx, err, c.commit)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		discard(c.Conn)
		return nil
	}
	c.used = time.Now()
	s.free = append(s.free, c)
	return nil
}

// conn returns a free connection, or a new one. A connection that the server may
// have ended is closed.
func (s *sqlConns) conn(ctx context.Context) (*sqlConn, error) {
	s.mu.Lock()
	var c *sqlConn
	if n := len(s.free); n > 0 {
		c, s.free = s.free[n-1], s.free[:n-1]
	}
	s.mu.Unlock()
	if c != nil && time.Since(c.used) < s.kind.idle {
		return c, nil
	}
	if c != nil {
		discard(c.Conn)
		s.discardFree()
	}
	fresh, err := s.db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	for _, setting := range s.kind.settings {
		if _, err := fresh.ExecContext(ctx, setting); err != nil {
			discard(fresh)
			return nil, err
		}
	}
	return &sqlConn{Conn: fresh, kind: s.kind}, nil
}

func (s *sqlConns) discardFree() {
	s.mu.Lock()
	free := s.free
	s.free = nil
	s.mu.Unlock()
	for _, c := range free {
		discard(c.Conn)
	}
}

func (s *sqlConns) close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.discardFree()
}

// discard closes a connection: its session must not serve others.
func discard(c *sql.Conn) {
	_ = c.Raw(func(any) error { return sqldriver.ErrBadConn })
	_ = c.Close()
}

// begin begins a transaction, with the lock that a statement takes.
func (c *sqlConn) begin(ctx context.Context, lock string) error {
	if !c.kind.together {
		return nil
	}
	_, err := c.ExecContext(ctx, "BEGIN; "+lock)
	return err
}

// end carries out statements and ends the transaction. Without statements there
// is nothing to commit: PostgreSQL would flush that a row was locked.
func (c *sqlConn) end(ctx context.Context, statements ...string) error {
	if len(statements) == 0 {
		_, err := c.ExecContext(ctx, "ROLLBACK")
		return err
	}
	if !c.kind.together {
		for _, s := range statements {
			if _, err := c.ExecContext(ctx, s); err != nil {
				return err
			}
		}
		statements = nil
	}
	all := ""
	for _, s := range statements {
		all += s + "; "
	}
	c.commit = true
	_, err := c.ExecContext(ctx, all+"COMMIT")
	return err
}
