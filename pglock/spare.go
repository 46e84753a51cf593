package pglock

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast/driver"
)

// patience is the time for which a renewal or a release waits for a connection of a pool
// that has none free, before it takes the spare one.
const patience = 100 * time.Millisecond

// spareIdle is the time after which an idle spare connection is closed.
const spareIdle = 10 * time.Second

// A spare is one connection beside the pool, for renewals and releases while other
// requests, or the user's own queries, have all connections of the pool: a lock must
// neither be lost nor stay behind because of them. It is opened when it is needed first.
type spare struct {
	mu     sync.Mutex
	pool   *pgxpool.Pool // of one connection; nil until it is needed
	closed bool
}

// keeping marks the context of a request that keeps or ends tickets.
type keeping struct{}

// Renew implements [driver.Driver].
func (d *Driver) Renew(ctx context.Context, refs []driver.Ref) ([]driver.Status, error) {
	return d.requests.Renew(context.WithValue(ctx, keeping{}, true), refs)
}

// Leave implements [driver.Driver].
func (d *Driver) Leave(ctx context.Context, refs []driver.Ref) ([]driver.Status, error) {
	return d.requests.Leave(context.WithValue(ctx, keeping{}, true), refs)
}

// acquire returns a connection for a request, which has a deadline.
func (d *database) acquire(ctx context.Context) (*pgxpool.Conn, error) {
	if ctx.Value(keeping{}) == nil {
		return d.pool.Acquire(ctx)
	}
	wait := patience
	if end, ok := ctx.Deadline(); ok {
		wait = min(wait, time.Until(end)/4)
	}
	first, giveUp := context.WithCancel(ctx)
	defer giveUp()
	defer time.AfterFunc(wait, func() {
		for first.Err() == nil {
			if st := d.pool.Stat(); st.AcquiredConns() >= st.MaxConns() {
				giveUp()
				return
			}
			select { // it waits for an attempt to connect
			case <-first.Done():
			case <-time.After(wait):
			}
		}
	}).Stop()
	c, err := d.pool.Acquire(first)
	if err == nil || first.Err() == nil || ctx.Err() != nil {
		return c, err
	}
	if c := d.spare.acquire(ctx, d); c != nil {
		return c, nil
	}
	return d.pool.Acquire(ctx)
}

// acquire returns the spare connection to a database, or nil after half of the time that
// ctx has.
func (s *spare) acquire(ctx context.Context, d *database) *pgxpool.Conn {
	s.mu.Lock()
	if s.pool == nil && !s.closed {
		config := d.pool.Config()
		if !d.owned { // the driver's own pool does that
			d.sockets.trackPool(config)
		}
		config.MaxConns, config.MinConns, config.MinIdleConns = 1, 0, 0
		config.MaxConnIdleTime, config.HealthCheckPeriod = spareIdle, spareIdle/2
		s.pool, _ = pgxpool.NewWithConfig(context.WithoutCancel(ctx), config)
	}
	pool := s.pool
	s.mu.Unlock()
	if pool == nil {
		return nil
	}
	if end, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Until(end)/2)
		defer cancel()
	}
	c, _ := pool.Acquire(ctx) // an error is that of the pool, too
	return c
}

// reset gives up the connection.
func (s *spare) reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pool != nil {
		s.pool.Reset()
	}
}

// close closes the connection when no request uses it any more.
func (s *spare) close() {
	s.mu.Lock()
	pool := s.pool
	s.pool, s.closed = nil, true
	s.mu.Unlock()
	if pool != nil {
		pool.Close()
	}
}
