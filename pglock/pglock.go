// Package pglock keeps lines of tickets in tables of a PostgreSQL database,
// version 13 or later: the lock where the data already is.
//
// Its tables are those of package sqlline. The server's clock alone is read.
// Every request is one statement or one short transaction in READ COMMITTED,
// whatever the database's default is, with limits on what it waits for; no
// connection is kept between requests, and none while a ticket waits. Nothing
// is left in a connection either, so requests pass through PgBouncer in
// transaction mode, and a pool of one connection is enough.
//
// A waiting client is woken by NOTIFY. Each driver that watches has one
// connection of its own for LISTEN, to a channel of its own, and a release
// notifies the channel of the client that it grants, within the transaction
// of the release, and nobody if nobody waits. Through a pooler that shares
// connections between transactions LISTEN hears nothing; the driver notices,
// and asks for its waiting tickets at a pace that depends on their places.
package pglock

import (
	"context"
	"iter"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/sqlline"
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
	pool  *pgxpool.Pool
	owned bool // the pool is ours to close
	opt   Options
	r     *sqlline.Remote // its name is that of our channel

	whole atomic.Bool // see Auto
	plain atomic.Bool // nothing is prepared, see prepare
	names map[*sqlline.Text]string
	ear   listener
}

var (
	_ driver.Driver     = (*Driver)(nil)
	_ driver.Identifier = (*Driver)(nil)
	_ driver.Checker    = (*Driver)(nil)
	_ sqlline.Site      = (*site)(nil)
)

func newDriver(pool *pgxpool.Pool, owned bool, o *Options) *Driver {
	d := &Driver{pool: pool, owned: owned, opt: *o}
	d.ear.d = d
	self := newChannel()
	lines := sqlline.New(dialect(o, self, d.tell))
	d.names = namesOf(lines.Often())
	d.r = sqlline.NewRemote(lines, &site{d}, self)
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
	if d.r.Shut() && d.owned {
		d.pool.Close()
	}
	return nil
}

// Identity implements [driver.Identifier].
func (d *Driver) Identity(ctx context.Context) (string, error) {
	if err := d.r.Begin(ctx); err != nil {
		return "", err
	}
	return d.identity(ctx)
}
