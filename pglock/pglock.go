// Package pglock keeps queues of tickets in tables of a PostgreSQL database,
// version 13 or later, so that the locks are where the data already is.
//
// Its tables are those of package sqlqueue. Only the server's clock is read.
// Every request is one statement or one short transaction in READ COMMITTED,
// whatever the database's default is, with limits on its waits. No connection
// is kept between requests, and a waiting ticket keeps none. Requests leave
// nothing in a connection, so they pass through PgBouncer in transaction mode,
// and a pool of one connection is enough. Where other queries have all of the
// pool's connections, renewals and releases take one beside it.
//
// NOTIFY wakes a waiting client. Each driver that watches has one connection of
// its own for LISTEN, to a channel of its own. A release notifies the channel
// of the granted client within the transaction of the release, and notifies
// nobody if nobody waits. LISTEN receives nothing through a pooler that shares
// connections between transactions. The driver notices that, and renews its
// waiting tickets at a pace that depends on their places.
package pglock

import (
	"context"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/sqlqueue"
)

// MinTTL and MaxTTL are the shortest and the longest TTL.
const (
	MinTTL = 500 * time.Millisecond
	MaxTTL = 10 * 365 * 24 * time.Hour
)

var traits = driver.Traits{
	Scheme:           "postgres",
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
	db       database
	listener listener
}

var (
	_ driver.Driver     = (*Driver)(nil)
	_ driver.Identifier = (*Driver)(nil)
	_ driver.Checker    = (*Driver)(nil)
	_ sqlqueue.Database = (*database)(nil)
)

func newDriver(pool *pgxpool.Pool, owned bool, o *Options) *Driver {
	d := &Driver{db: database{pool: pool, owned: owned, opt: *o, sockets: newSockets()}}
	d.listener.db, d.db.silent = &d.db, d.listener.checkNow
	self := newChannel()
	queues := sqlqueue.New(dialect(o, self, d.db.notifyStmts))
	d.db.stmtNames = namesOf(queues.Frequent())
	d.db.tables = sqlqueue.NewTables(queues, &d.db, self)
	d.requests = d.db.tables.Requests()
	return d
}

// Traits implements [driver.Driver].
func (d *Driver) Traits() driver.Traits { return traits }

// Close implements [driver.Driver]. A pool that was passed to [New] stays open, with its
// connections, and with the time that the client library takes to give up those whose
// requests a silent server did not answer: at most 15 s.
func (d *Driver) Close() error {
	if d.db.tables.Stop() {
		cut := time.AfterFunc(closeTime, d.db.sockets.cutAll)
		d.db.spare.close()
		if d.db.owned {
			d.db.pool.Close()
		}
		cut.Stop()
		d.db.sockets.close()
	}
	return nil
}

// Identity implements [driver.Identifier]. It returns a text with the id that was
// written when the tables were created. To tell copies of a database apart, the
// text also has the database's name and, where this user may read it, the
// server's own id.
func (d *Driver) Identity(ctx context.Context) (string, error) {
	var database, system string
	err := d.db.tables.Begin(ctx)
	if err == nil {
		err = d.db.queryRow(ctx, "SELECT current_database()", &database)
	}
	if err == nil {
		err = d.db.queryRow(ctx, "SELECT system_identifier::text FROM pg_control_system()", &system)
		if code(err) == noRights {
			system, err = "", nil
		}
	}
	if err != nil {
		return "", err
	}
	return strings.Join([]string{"postgres", system, database, d.db.opt.tables(), d.db.tables.ID()}, "|"), nil
}
