package pglock

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
)

// newGiven returns a driver on a pool of the user's, and the pool.
func newGiven(t *testing.T, url string) (*Driver, *pgxpool.Pool) {
	t.Helper()
	config, o, err := parseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	d, err := New(pool, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d, pool
}

// TestPoolThatOthersExhaust checks that locks are renewed and released while other
// queries have all connections of the pool, whether the driver made it or not, that more
// than one release at once has its turn, and that other requests wait for the pool.
func TestPoolThatOthersExhaust(t *testing.T) {
	url := servers.SharedPostgres(t).URL("postgres", own()+"&pool_max_conns=2")
	given, _ := newGiven(t, url)
	for name, d := range map[string]*Driver{"of the driver": openOn(t, url), "given": given} {
		t.Run(name, func(t *testing.T) {
			var held []driver.Ref
			for i := range 8 {
				tt := ticket(i, name+string(rune('a'+i)))
				mustJoin(t, d, tt, driver.Held)
				held = append(held, driver.Ref{Ticket: tt, State: driver.Held})
			}
			for range 2 {
				c, err := d.db.pool.Acquire(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				defer c.Release()
			}
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			statuses, err := d.Renew(ctx, held)
			for i, s := range statuses {
				if s.State != driver.Held {
					t.Errorf("ticket %d is %v after a renewal: %v", i, s.State, s.Err)
				}
			}
			if err != nil {
				t.Errorf("Renew: %v", err)
			}
			ended := make(chan error, len(held))
			for _, ref := range held {
				go func() {
					_, err := d.Leave(ctx, []driver.Ref{ref})
					ended <- err
				}()
			}
			for range held {
				if err := <-ended; err != nil {
					t.Errorf("Leave: %v", err)
				}
			}
			short, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			if s, err := d.Join(short, ticket(9, name), false); driver.ClassOf(err) != driver.Unavailable {
				t.Errorf("a Join is %v, %v without a connection", s.State, err)
			}
		})
	}
}
