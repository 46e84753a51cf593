package mysqllock

import (
	"context"
	sqldriver "database/sql/driver"
	"time"

	"github.com/holdfast-go/holdfast/internal/sqlqueue"
)

// trackedConn is a connection of the driver's own pool. The pool closes it instead of
// using it again if it may have died since its last use.
type trackedConn struct {
	sqlConn
	suspect *sqlqueue.Last   // connections whose last use ended before may be dead
	used    sqlqueue.Instant // when its last use ended well
}

// IsValid implements [sqldriver.Validator]. The pool calls it after each use.
func (c *trackedConn) IsValid() bool {
	if !c.sqlConn.IsValid() {
		return false
	}
	c.used = sqlqueue.InstantOf(time.Now())
	return true
}

// ResetSession implements [sqldriver.SessionResetter]. The pool calls it before each
// use but the first, and takes another connection after [sqldriver.ErrBadConn].
func (c *trackedConn) ResetSession(ctx context.Context) error {
	if c.used < c.suspect.Load() {
		return sqldriver.ErrBadConn
	}
	return c.sqlConn.ResetSession(ctx)
}
