package pglock

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast/internal/sqlqueue"
)

// lastUse is the key of the instant at which a connection's last use ended, in the
// connection's own data.
const lastUse = "holdfast last use"

// track sets what the driver's own pool does with its connections. A new one gets the
// prepared statements before a request uses it: a request with little time left would end
// the connection in the middle of them. One that may have died since its last use is
// closed, and not used again.
func (d *database) track(config *pgxpool.Config) {
	d.sockets.trackPool(config)
	config.AfterConnect = func(ctx context.Context, c *pgx.Conn) error {
		ctx, cancel := sqlqueue.Within(ctx, requestTime)
		defer cancel()
		_, err := d.prepare(ctx, c.PgConn())
		return err
	}
	config.ShouldPing = func(_ context.Context, p pgxpool.ShouldPingParams) bool {
		return p.IdleDuration > time.Second && !d.mayBeDead(p.Conn)
	}
	config.PrepareConn = func(_ context.Context, c *pgx.Conn) (bool, error) { return !d.mayBeDead(c), nil }
}

// noteUse notes that the use of a connection ends. The pool's own hook for that would
// give the connection back later, on another goroutine.
func (d *database) noteUse(c *pgx.Conn) {
	data := c.PgConn().CustomData()
	used, ok := data[lastUse].(*sqlqueue.Instant)
	if !ok {
		used = new(sqlqueue.Instant)
		data[lastUse] = used
	}
	*used = sqlqueue.InstantOf(time.Now())
}

// mayBeDead reports whether an idle connection has not been used since another one led
// nowhere.
func (d *database) mayBeDead(c *pgx.Conn) bool {
	used, ok := c.PgConn().CustomData()[lastUse].(*sqlqueue.Instant)
	return ok && *used < d.suspect.Load()
}
