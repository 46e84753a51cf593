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
	"errors"
	"iter"
	"math/rand/v2"
	"slices"
	"sync"
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
	lines *sqlline.Lines
	name  string // of our channel

	ready     atomic.Bool // the tables are there
	preparing chan struct{}
	id        atomic.Pointer[string] // of the tables
	whole     atomic.Bool            // see Auto

	ear listener

	ctx     context.Context // ends with Close
	cancel  context.CancelFunc
	mu      sync.Mutex // guards work against Close
	work    sync.WaitGroup
	closed  atomic.Bool
	joins   atomic.Int64
	sweeper sync.Mutex // held while a sweep runs
	swept   []byte     // where the last one ended
}

var (
	_ driver.Driver     = (*Driver)(nil)
	_ driver.Identifier = (*Driver)(nil)
	_ driver.Checker    = (*Driver)(nil)
	_ sqlline.DB        = (*Driver)(nil)
)

func newDriver(pool *pgxpool.Pool, owned bool, o *Options) *Driver {
	d := &Driver{
		pool: pool, owned: owned, opt: *o, preparing: make(chan struct{}, 1),
		name: newChannel(), swept: randomKey(),
	}
	d.ctx, d.cancel = context.WithCancel(context.Background())
	d.joins.Store(sweepEvery - 1)
	d.ear.d = d
	d.lines = sqlline.New(dialect(o, d.tell))
	return d
}

// Traits implements [driver.Driver].
func (d *Driver) Traits() driver.Traits { return traits }

// Join implements [driver.Driver].
func (d *Driver) Join(ctx context.Context, t *driver.Ticket, wait bool) (driver.Place, error) {
	if err := d.begin(ctx); err != nil {
		return driver.Place{}, err
	}
	p, pushes, err := d.lines.Join(ctx, d, t, d.address(), wait)
	d.after(pushes, err)
	if err != nil {
		return driver.Place{}, err
	}
	d.sweepSoon()
	return d.paced(p), nil
}

// Renew implements [driver.Driver].
func (d *Driver) Renew(ctx context.Context, refs []driver.Ref) ([]driver.Place, error) {
	return d.batch(ctx, refs, d.lines.Renew)
}

// Leave implements [driver.Driver].
func (d *Driver) Leave(ctx context.Context, refs []driver.Ref) ([]driver.Place, error) {
	return d.batch(ctx, refs, d.lines.Leave)
}

type batch func(context.Context, sqlline.DB, []driver.Ref) ([]driver.Place, []sqlline.Push)

func (d *Driver) batch(ctx context.Context, refs []driver.Ref, do batch) ([]driver.Place, error) {
	if err := d.begin(ctx); err != nil {
		return nil, err
	}
	places, pushes := do(ctx, d, refs)
	var err error
	for i, p := range places {
		if p.Err != nil && err == nil {
			err = p.Err
		}
		places[i] = d.paced(p)
	}
	d.after(pushes, err)
	return places, nil
}

// Inspect implements [driver.Driver].
func (d *Driver) Inspect(ctx context.Context, name string) (driver.Line, error) {
	if err := d.begin(ctx); err != nil {
		return driver.Line{}, err
	}
	line, pushes, err := d.lines.Inspect(ctx, d, name)
	d.after(pushes, err)
	if err != nil {
		return driver.Line{}, err
	}
	return line, nil
}

// Names implements [driver.Driver].
func (d *Driver) Names(ctx context.Context, prefix string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		var after []byte
		for {
			err := d.begin(ctx)
			var page []sqlline.Named
			var next []byte
			if err == nil {
				page, next, err = d.lines.Names(ctx, d, after, prefix)
			}
			for i := 0; err == nil && i < len(page); i++ {
				lives := true
				if page[i].Quiet {
					lives, err = d.lives(ctx, page[i].Name)
				}
				if lives && err == nil && !yield(page[i].Name, nil) {
					return
				}
			}
			if err != nil {
				yield("", err)
				return
			}
			if next == nil {
				return
			}
			after = next
		}
	}
}

// Break implements [driver.Driver].
func (d *Driver) Break(ctx context.Context, name, ticketID string) error {
	if err := d.begin(ctx); err != nil {
		return err
	}
	pushes, err := d.lines.Break(ctx, d, name, ticketID)
	d.after(pushes, err)
	return err
}

// Close implements [driver.Driver]. A pool that was given to [New] stays open.
func (d *Driver) Close() error {
	d.mu.Lock()
	first := d.closed.CompareAndSwap(false, true)
	d.mu.Unlock()
	if !first {
		return nil
	}
	d.cancel()
	d.work.Wait()
	if d.owned {
		d.pool.Close()
	}
	return nil
}

// Identity implements [driver.Identifier].
func (d *Driver) Identity(ctx context.Context) (string, error) {
	if err := d.begin(ctx); err != nil {
		return "", err
	}
	return d.identity(ctx)
}

// before is what every request checks first.
func (d *Driver) before(ctx context.Context) error {
	if d.closed.Load() {
		return driver.ErrClosed
	}
	return driver.Before(ctx)
}

// begin is before, and sees to it that the tables are there.
func (d *Driver) begin(ctx context.Context) error {
	if err := d.before(ctx); err != nil {
		return err
	}
	return d.prepare(ctx)
}

// goes runs f until it returns, and Close waits for it. It is not run on a
// closed driver.
func (d *Driver) goes(f func()) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed.Load() {
		return false
	}
	d.work.Go(f)
	return true
}

// sweepEvery is how many joins there are between two sweeps.
const sweepEvery = 16

// sweepSoon starts a sweep if it is time for one and none is running.
func (d *Driver) sweepSoon() {
	if d.joins.Add(1) < sweepEvery || !d.sweeper.TryLock() {
		return
	}
	d.joins.Store(0)
	if !d.goes(func() { defer d.sweeper.Unlock(); d.sweep() }) {
		d.sweeper.Unlock()
	}
}

// sweep removes what is of no use any more, a few rows at a time. Its errors
// are of no consequence: there is always a next one.
func (d *Driver) sweep() {
	ctx, cancel := context.WithTimeout(d.ctx, patience)
	defer cancel()
	next, names, err := d.lines.Sweep(ctx, d, d.swept)
	if err != nil {
		return
	}
	d.swept = next
	for _, name := range names {
		if _, err := d.lives(ctx, name); err != nil {
			return
		}
	}
}

// lives advances a line and says whether it has tickets then. A row that is
// not ours has none.
func (d *Driver) lives(ctx context.Context, name string) (bool, error) {
	lives, pushes, err := d.lines.Lives(ctx, d, name)
	d.after(pushes, err)
	if driver.ClassOf(err) == driver.Refused && code(err) == "" && !errors.Is(err, driver.ErrClosed) {
		return false, nil
	}
	return err == nil && lives, err
}

// randomKey is where the sweeps of a process begin: processes that end after
// one lock must not all look at the same lines.
func randomKey() []byte {
	key := make([]byte, 8)
	for i := range key {
		key[i] = byte(rand.Uint32())
	}
	return slices.Clip(key)
}
