// Package mysqllock keeps queues of tickets in tables of a MySQL or MariaDB
// database, so that the locks are where the data already is. It is for MySQL 8
// and MariaDB 10.6 or later.
//
// Its tables are those of package sqlqueue, and one for messages. Only the
// server's clock is read. Every request is one statement or one short
// transaction in READ COMMITTED, whatever the session's level is. No connection
// is kept between requests, and a waiting ticket keeps none, so a pool of one
// connection is enough.
//
// MySQL has no notifications. Each driver that watches has one connection for
// wake-ups: it sleeps at the server and holds a named lock (GET_LOCK) with a
// unique name. A client that grants a ticket writes a message for the ticket's
// client. In the packet of its commit it then interrupts the statement of the
// connection that holds the name: KILL QUERY IS_USED_LOCK('…'). This can hit
// nothing but the sleep of such a connection. If interruptions do not reach a
// driver (behind a pooler that shares connections, or in a pool of one), the
// driver notices that, and renews its waiting tickets at a pace that depends on
// their places.
package mysqllock

import (
	"context"
	"crypto/rand"
	"database/sql"
	"strings"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/sqlqueue"
)

// MinTTL and MaxTTL are the shortest and the longest TTL.
const (
	MinTTL = 500 * time.Millisecond
	MaxTTL = 10 * 365 * 24 * time.Hour
)

var traits = driver.Traits{
	Scheme:           "mysql",
	Fencing:          true,
	Shared:           true,
	Owner:            true,
	Fair:             true,
	Push:             true,
	Marks:            true,
	SurvivesRestart:  true,
	SurvivesFailover: false,
	MinTTL:           MinTTL,
	MaxTTL:           MaxTTL,
	Granularity:      time.Millisecond,
}

// Describe returns the Traits of every [Driver].
func Describe() driver.Traits { return traits }

// requests are the methods of [driver.Driver] that the SQL stores share. The
// alias keeps the embedded field unexported.
type requests = sqlqueue.Requests

// Driver is one client of a database. It implements [driver.Driver]; the methods
// that are not listed here are those of the interface.
type Driver struct {
	requests
	db         *sql.DB
	owned      bool    // Close closes the pool
	wakeupPool *sql.DB // the pool of the wake-up connection
	opt        Options
	tables     *sqlqueue.Tables // its name is that of the wake-up connection's named lock

	mode   atomic.Pointer[sendMode] // how statements are sent, once that is known
	wakeup wakeup
}

var (
	_ driver.Driver     = (*Driver)(nil)
	_ driver.Identifier = (*Driver)(nil)
	_ driver.Checker    = (*Driver)(nil)
	_ sqlqueue.Database = (*database)(nil)
)

func newDriver(db, wakeupPool *sql.DB, owned bool, o *Options) *Driver {
	d := &Driver{db: db, wakeupPool: wakeupPool, owned: owned, opt: *o}
	d.wakeup.d = d
	d.tables = sqlqueue.NewTables(sqlqueue.New(dialect(o, d.notifyStmts)), &database{d}, "holdfast_"+strings.ToLower(rand.Text()))
	d.requests = d.tables.Requests()
	return d
}

// Traits implements [driver.Driver].
func (d *Driver) Traits() driver.Traits { return traits }

// Close implements [driver.Driver]. A pool that was given to [New] stays open.
func (d *Driver) Close() error {
	if !d.tables.Stop() || !d.owned {
		return nil
	}
	_ = d.wakeupPool.Close()
	return d.db.Close()
}

// Identity implements [driver.Identifier].
func (d *Driver) Identity(ctx context.Context) (string, error) {
	if err := d.tables.Begin(ctx); err != nil {
		return "", err
	}
	return d.identity(ctx)
}
