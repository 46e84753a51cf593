package pglock

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
)

// TestF96_FailoverKeepsReplicatedHolds checks that a standby is reported as
// one, and that a URL with both servers finds the one that takes writes. After
// a failover, replicated holds continue, and later holders get greater tokens.
func TestF96_FailoverKeepsReplicatedHolds(t *testing.T) {
	t.Parallel()
	s := servers.Postgres(t, servers.PostgresOptions{})
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	openOn(t, s.URL("postgres", "")) // makes the tables
	b := s.Standby(t)

	alone := openOn(t, b.URL("postgres", "target_session_attrs=any"))
	_, err := alone.Join(ctx, ticket(1, "n"), true)
	if driver.ClassOf(err) != driver.Unavailable || !strings.Contains(err.Error(), "accepts no writes") {
		t.Errorf("a standby says: %v", err)
	}
	findings, err := alone.Check(ctx)
	problem := false
	for _, f := range findings {
		problem = problem || f.Level == driver.Problem && strings.Contains(f.Detail+f.Advice, "standby")
	}
	if err != nil || !problem {
		t.Errorf("the doctor on a standby: %+v, %v", findings, err)
	}

	// Replication is synchronous from here on: whatever was answered is on the
	// standby.
	s.Exec(t, "ALTER SYSTEM SET synchronous_standby_names = '*'")
	s.Exec(t, "SELECT pg_reload_conf()")
	for s.Value(t, "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'") != 1 {
		time.Sleep(10 * time.Millisecond)
	}
	both := fmt.Sprintf("postgres://postgres@127.0.0.1:%d,127.0.0.1:%d/postgres?sslmode=disable", b.Port, s.Port)
	outage := outageOf(t, b, both)
	outage.ServerMoves = true
	outage.Survive(t, func() {
		s.Process.Stop() // without a last checkpoint
		b.Promote(t)
		b.Exec(t, "ALTER SYSTEM RESET synchronous_standby_names")
		b.Exec(t, "SELECT pg_reload_conf()")
	})
}

// TestMaxConnections checks that a client of a server whose max_connections are
// all taken reports that, and goes on with its existing connections.
func TestMaxConnections(t *testing.T) {
	t.Parallel()
	s := servers.Postgres(t, servers.PostgresOptions{Settings: []string{"max_connections=10", "max_wal_senders=0"}})
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	d := openOn(t, s.URL("postgres", "pool_max_conns=1"))
	held := ticket(1, "held")
	mustJoin(t, d, held, driver.Held)
	var taken []*pgx.Conn
	for {
		c, err := pgx.Connect(ctx, s.URL("postgres", ""))
		if err != nil {
			break
		}
		taken = append(taken, c)
	}
	_, err := Open(ctx, s.URL("postgres", ""))
	if driver.ClassOf(err) != driver.Unavailable || !strings.Contains(fmt.Sprint(err), "the server has too many clients") {
		t.Errorf("beside %d connections: class %v: %v", len(taken), driver.ClassOf(err), err)
	}
	if p := mustRenew(t, d, held); p.State != driver.Held {
		t.Errorf("the hold is %v", p.State)
	}
	for _, c := range taken {
		_ = c.Close(ctx)
	}
	mustLeave(t, d, held)
}

// TestDiskFull checks that a full disk is reported in the server's words, ends
// no hold, and is over when there is space.
func TestDiskFull(t *testing.T) {
	t.Parallel()
	disk := servers.NewDisk(t, "/base/")
	s := servers.Postgres(t, servers.PostgresOptions{Env: disk.Env()})
	d := openOn(t, s.URL("postgres", ""))
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	held := ticket(1, "held")
	mustJoin(t, d, held, driver.Held)
	disk.Fill(t)
	var err error
	n := 2
	for ; err == nil && n < 5000; n++ { // existing pages fill up first
		_, err = d.Join(ctx, ticket(n, "held"), true)
	}
	if driver.ClassOf(err) != driver.Unavailable || !strings.Contains(err.Error(), "No space left") {
		t.Errorf("after %d tickets: class %v: %v", n, driver.ClassOf(err), err)
	}
	disk.Free(t)
	if p := mustRenew(t, d, held); p.State != driver.Held {
		t.Errorf("the hold is %v", p.State)
	}
	mustJoin(t, d, ticket(n, "held"), driver.Waiting)
}
