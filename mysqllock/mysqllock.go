// Package mysqllock keeps lines of tickets in tables of a MySQL or MariaDB
// database: the lock where the data already is. It is for MySQL 8 and MariaDB
// 10.6 or later.
//
// Its tables are those of package sqlline, and one for messages. The server's
// clock alone is read. Every request is one statement or one short transaction
// in READ COMMITTED, whatever the session's level is; no connection is kept
// between requests, and none while a ticket waits, so a pool of one connection
// is enough.
//
// MySQL has no notifications. Each driver that watches has one connection that
// sleeps at the server and holds a named lock (GET_LOCK) of a name that nobody
// else has: its doorbell. Whoever grants a ticket writes a message for the
// ticket's client, and in the packet of its commit interrupts the statement of
// the connection that holds that name: KILL QUERY IS_USED_LOCK('…'). Nothing but
// the sleep of such a connection can be hit. Where that is not heard (behind a
// pooler that shares connections, or in a pool of one) the driver notices, and
// asks for its waiting tickets at a pace that depends on their places.
package mysqllock

import (
	"context"
	"crypto/rand"
	"database/sql"
	"iter"
	"strings"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/sqlline"
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
	SurvivesRestart:  true,
	SurvivesFailover: false,
	MinTTL:           MinTTL,
	MaxTTL:           MaxTTL,
	Granularity:      time.Millisecond,
}

// Describe returns what every [Driver] answers as its Traits.
func Describe() driver.Traits { return traits }

// Driver is one client of a database.
type Driver struct {
	db    *sql.DB
	owned bool    // the pool is ours to close
	bells *sql.DB // where the bell's connection comes from
	opt   Options
	r     *sqlline.Remote // its name is that of our bell

	way  atomic.Pointer[way] // how statements travel, once that is known
	bell bell
}

var (
	_ driver.Driver     = (*Driver)(nil)
	_ driver.Identifier = (*Driver)(nil)
	_ driver.Checker    = (*Driver)(nil)
	_ sqlline.Site      = (*site)(nil)
)

func newDriver(db, bells *sql.DB, owned bool, o *Options) *Driver {
	d := &Driver{db: db, bells: bells, owned: owned, opt: *o}
	d.bell.d = d
	d.r = sqlline.NewRemote(sqlline.New(dialect(o, d.tell)), &site{d}, "holdfast_"+strings.ToLower(rand.Text()))
	return d
}

// Traits implements [driver.Driver].
func (d *Driver) Traits() driver.Traits { return traits }

// Join implements [driver.Driver].
func (d *Driver) Join(ctx context.Context, t *driver.Ticket, wait bool) (driver.Place, error) {
	return d.r.Join(ctx, t, wait)
}

// Renew implements [driver.Driver].
func (d *Driver) Renew(ctx context.Context, refs []driver.Ref) ([]driver.Place, error) {
	return d.r.Renew(ctx, refs)
}

// Leave implements [driver.Driver].
func (d *Driver) Leave(ctx context.Context, refs []driver.Ref) ([]driver.Place, error) {
	return d.r.Leave(ctx, refs)
}

// Inspect implements [driver.Driver].
func (d *Driver) Inspect(ctx context.Context, name string) (driver.Line, error) {
	return d.r.Inspect(ctx, name)
}

// Names implements [driver.Driver].
func (d *Driver) Names(ctx context.Context, prefix string) iter.Seq2[string, error] {
	return d.r.Names(ctx, prefix)
}

// Break implements [driver.Driver].
func (d *Driver) Break(ctx context.Context, name, ticketID string) error {
	return d.r.Break(ctx, name, ticketID)
}

// Close implements [driver.Driver]. A pool that was given to [New] stays open.
func (d *Driver) Close() error {
	if !d.r.Shut() || !d.owned {
		return nil
	}
	_ = d.bells.Close()
	return d.db.Close()
}

// Identity implements [driver.Identifier].
func (d *Driver) Identity(ctx context.Context) (string, error) {
	if err := d.r.Begin(ctx); err != nil {
		return "", err
	}
	return d.identity(ctx)
}
