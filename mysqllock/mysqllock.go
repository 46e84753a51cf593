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
// client. In the request of its commit it then interrupts the statement of the
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

// requests are the methods of [driver.Driver] that the SQL stores share. The
// alias keeps the embedded field unexported.
type requests = sqlqueue.Requests

// Driver is one client of a database. It implements [driver.Driver]; the methods
// that are not listed here are those of the interface.
type Driver struct {
	requests
	db     database
	wakeup wakeup
}

var (
	_ driver.Driver       = (*Driver)(nil)
	_ driver.Identifier   = (*Driver)(nil)
	_ driver.Checker      = (*Driver)(nil)
	_ sqlqueue.Database   = (*database)(nil)
	_ sqlqueue.CompoundDB = (*database)(nil)
)

func newDriver(pool, wakeupPool *sql.DB, owned bool, o *Options) *Driver {
	d := &Driver{db: database{pool: pool, owned: owned, opt: *o}}
	d.wakeup.db, d.wakeup.pool, d.db.silent = &d.db, wakeupPool, d.wakeup.reconnect
	name := "holdfast_" + strings.ToLower(rand.Text())
	d.db.tables = sqlqueue.NewTables(sqlqueue.New(dialect(o, name, d.db.notifyStmts)), &d.db, name)
	d.requests = d.db.tables.Requests()
	return d
}

// Traits implements [driver.Driver].
func (d *Driver) Traits() driver.Traits { return traits }

// Close implements [driver.Driver]. A pool that was given to [New] stays open.
func (d *Driver) Close() error {
	if !d.db.tables.Stop() || !d.db.owned {
		return nil
	}
	_ = d.wakeup.pool.Close()
	return d.db.pool.Close()
}

// Identity implements [driver.Identifier]. It returns a text with the id that was
// written when the tables were created and, to tell copies of a database apart,
// the database's name and its server.
func (d *Driver) Identity(ctx context.Context) (string, error) {
	var database, host string
	if err := d.db.tables.Begin(ctx); err != nil {
		return "", err
	}
	err := d.db.queryRow(ctx, "SELECT DATABASE(), CONCAT(@@hostname, ':', @@port)", nil, &database, &host)
	return strings.Join([]string{"mysql", host, database, d.db.opt.prefix(), d.db.tables.ID()}, "|"), err
}
