package pglock

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
)

// giveUp sends requests that a silent server does not answer.
func giveUp(t *testing.T, d *Driver, n int, held driver.Ref) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	var calls sync.WaitGroup
	for i := range n {
		calls.Go(func() {
			if _, err := d.Join(ctx, ticket(100+i, "silent"), true); err == nil {
				t.Error("the server is not silent")
			}
		})
		calls.Go(func() { _, _ = d.Renew(ctx, []driver.Ref{held}) })
	}
	calls.Wait()
}

// TestF136_SilenceFreesThePool checks that connections whose requests were given up do not
// keep their places in the driver's pool, and goroutines, for as long as the client library
// waits for a server that is silent: 15 s.
func TestF136_SilenceFreesThePool(t *testing.T) {
	s := servers.Postgres(t, servers.PostgresOptions{})
	d := openOn(t, s.URL("postgres", own()+"&pool_max_conns=4&connect_timeout=1"))
	held := driver.Ref{Ticket: ticket(1, "n"), State: driver.Held}
	mustJoin(t, d, held.Ticket, driver.Held)
	resume := sync.OnceFunc(s.Pause(t))
	defer resume()
	giveUp(t, d, 4, held)
	start := time.Now()
	for d.db.pool.Stat().TotalConns() > 0 {
		if time.Since(start) > 4*cancelTime+4*time.Second {
			t.Fatalf("after %v: %d connections keep places in the pool", time.Since(start), d.db.pool.Stat().TotalConns())
		}
		time.Sleep(10 * time.Millisecond)
	}
	resume()
	mustLeave(t, d, held.Ticket)
}

// TestF136_GivenPoolStays checks that Close, while the server is silent, ends the
// connections that the driver opened beside a pool of the user's, and none of the pool's.
func TestF136_GivenPoolStays(t *testing.T) {
	s := servers.Postgres(t, servers.PostgresOptions{})
	d, pool := newGiven(t, s.URL("postgres", own()+"&pool_max_conns=2"))
	if err := d.Watch(t.Context(), func(string, driver.Status) {}); err != nil {
		t.Fatal(err)
	}
	held := driver.Ref{Ticket: ticket(1, "n"), State: driver.Held}
	mustJoin(t, d, held.Ticket, driver.Held)
	var users []*pgxpool.Conn
	for range 2 {
		c, err := pool.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		users = append(users, c)
	}
	mustRenew(t, d, held.Ticket) // on the spare connection
	resume := sync.OnceFunc(s.Pause(t))
	defer resume()
	giveUp(t, d, 1, held)
	start := time.Now()
	if err := d.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("Close took %v", took)
	}
	if n := len(d.db.sockets.open); n != 0 {
		t.Errorf("%d connections of the driver's own are open", n)
	}
	resume()
	for _, c := range users {
		if err := c.Ping(t.Context()); err != nil {
			t.Errorf("a connection of the user's: %v", err)
		}
		c.Release()
	}
}
