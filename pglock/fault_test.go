package pglock

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/sqlqueue"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
	"github.com/holdfast-go/holdfast/internal/testkit/sqlcases"
)

// TestF95_ServerRestarts restarts the server, and crashes it, while a lock is
// held and waited for. It checks that the hold survives, that the wait goes on,
// and that tokens grow.
//
// Covers: F26.
func TestF95_ServerRestarts(t *testing.T) {
	s := servers.Postgres(t, servers.PostgresOptions{})
	outageOf(t, s, s.URL("postgres", "")).Survive(t, func() { s.Restart(t) }, func() { s.Crash(t) })
}

// outageOf describes an outage of a server that has no other locks.
func outageOf(t *testing.T, s *servers.PostgresServer, url string) sqlcases.Outage {
	return sqlcases.Outage{
		Open:  func() driver.Driver { return openOn(t, url) },
		Waits: func() bool { return s.Value(t, "SELECT count(*) FROM holdfast_ticket") > 0 },
		Held:  func() int64 { return s.Value(t, "SELECT held FROM holdfast_line") },
	}
}

// TestF97_KilledConnections kills connections again and again, in any step. It
// checks that no call returns an error and that the count is exact.
func TestF97_KilledConnections(t *testing.T) {
	s := servers.Postgres(t, servers.PostgresOptions{})
	url := s.URL("postgres", "pool_max_conns=3")
	sqlcases.CountsWhileKilled(t, func() driver.Driver { return openOn(t, url) }, func() int64 {
		return s.Value(t, "SELECT count(pg_terminate_backend(pid)) FROM (SELECT pid FROM pg_stat_activity "+
			"WHERE application_name = 'holdfast' ORDER BY random() LIMIT 1) k")
	})
}

// TestF92_F93_StrictIsolation uses a database whose default isolation is
// stricter. It checks that clients count exactly and that no call returns an
// error.
func TestF92_F93_StrictIsolation(t *testing.T) {
	s := servers.SharedPostgres(t)
	for _, level := range []string{"repeatable read", "serializable"} {
		role := "strict_" + level[:4]
		s.Exec(t, "CREATE ROLE "+role+" SUPERUSER LOGIN")
		s.Exec(t, "ALTER ROLE "+role+" SET default_transaction_isolation = '"+level+"'")
		url := s.URL(role, own())
		sqlcases.CountsExactly(t, 3, 4, 5, func() driver.Driver { return openOn(t, url) }, nil)
	}
}

// TestClassesOfServerErrors checks the classes of errors that the server may
// return.
//
// Covers: F94, F96.
func TestClassesOfServerErrors(t *testing.T) {
	s := servers.Postgres(t, servers.PostgresOptions{})
	d := openOn(t, s.URL("postgres", "pool_max_conns=2"))
	held := ticket(1, "held")
	mustJoin(t, d, held, driver.Held)

	// F94: somebody else has the row locked. The server gives up first.
	c := admin(t, s.URL("postgres", ""))
	ctx := context.Background()
	tx, err := c.Begin(ctx)
	if err == nil {
		_, err = tx.Exec(ctx, "SELECT 1 FROM holdfast_line FOR UPDATE")
	}
	if err != nil {
		t.Fatal(err)
	}
	sqlcases.RequestsFail(t, d, held, time.Second, driver.NotDone, "timeout")
	if err := tx.Rollback(ctx); err != nil {
		t.Fatal(err)
	}

	// F96: read-only, as after a failover.
	s.Exec(t, "ALTER DATABASE postgres SET default_transaction_read_only = on")
	d.db.pool.Reset()
	sqlcases.RequestsFail(t, d, held, 10*time.Second, driver.Unavailable, "accepts no writes")
	findings, err := d.Check(ctx)
	if err != nil || findings[len(findings)-1].Level != driver.Problem {
		t.Errorf("the doctor on a read-only server: %v, %v", findings, err)
	}
	// This connection is older than the setting.
	if _, err := c.Exec(ctx, "ALTER DATABASE postgres RESET default_transaction_read_only"); err != nil {
		t.Fatal(err)
	}
	// Connections made meanwhile are still read-only, and are found one by one.
	for limit := time.Now().Add(20 * time.Second); ; {
		p, err := d.Renew(ctx, []driver.Ref{{Ticket: held, State: driver.Held}})
		if err == nil && p[0].Err == nil && p[0].State == driver.Held {
			break
		}
		if time.Now().After(limit) {
			t.Fatalf("afterwards: %v, %v", p, err)
		}
	}

	// No connection is left.
	s.Exec(t, "ALTER ROLE app CONNECTION LIMIT 0")
	_, err = Open(ctx, s.URL("app", ""))
	if driver.ClassOf(err) != driver.Unavailable || !strings.Contains(err.Error(), "the server has too many clients") {
		t.Errorf("no connection left: %v", err)
	}

	// A table was dropped: one request reports it, and the next one creates it
	// again.
	s.Exec(t, "DROP TABLE holdfast_ticket, holdfast_line, holdfast_grave, holdfast_store")
	_, err = d.Join(ctx, ticket(3, "n"), true)
	if driver.ClassOf(err) != driver.Refused || !strings.Contains(err.Error(), "missing") {
		t.Errorf("without tables: %v", err)
	}
	mustJoin(t, d, ticket(4, "n"), driver.Held)
}

// TestF99_PoolerWithoutListenIsNoticed checks that the driver notices that
// LISTEN receives nothing through a pooler in transaction mode, and that waits
// end all the same. With a way past the pooler, and in session mode, pushes
// flow.
func TestF99_PoolerWithoutListenIsNoticed(t *testing.T) {
	s := servers.SharedPostgres(t)
	transaction := servers.PgBouncer(t, s, "transaction", 4)
	session := servers.PgBouncer(t, s, "session", 20)
	for _, c := range []struct {
		name, url string
		hears     bool
	}{
		{"direct", s.URL("postgres", own()), true},
		{"transaction", transaction.URL("postgres", own()), false},
		{"past", transaction.URL("postgres", own()+fmt.Sprintf("&listen=127.0.0.1:%d", s.Port)), true},
		{"session", session.URL("postgres", own()), true},
	} {
		t.Run(c.name, func(t *testing.T) {
			d, e := openOn(t, c.url), openOn(t, c.url)
			pushed := make(chan string, 10)
			if err := e.Watch(context.Background(), func(id string, _ driver.Status) { pushed <- id }); err != nil {
				t.Fatal(err)
			}
			if e.db.tables.PushesArrive.Load() != c.hears {
				t.Fatalf("it hears: %v", !c.hears)
			}
			a, b := ticket(1, "n"), ticket(2, "n")
			mustJoin(t, d, a, driver.Held)
			p := mustJoin(t, e, b, driver.Waiting)
			if quick := p.Recheck <= sqlqueue.PaceLast; quick == c.hears {
				t.Errorf("recheck after %v", p.Recheck)
			}
			mustLeave(t, d, a)
			if c.hears {
				if id := <-pushed; id != b.ID {
					t.Errorf("told %q", id)
				}
			} else if p := mustRenew(t, e, b); p.State != driver.Held {
				t.Errorf("the waiter is %v", p.State)
			}
			findings, err := e.Check(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range findings {
				t.Logf("%v: %s: %s", f.Level, f.Topic, f.Detail)
				if f.Topic == "wake-up" && (f.Level == driver.OK) != c.hears || f.Level == driver.Problem {
					t.Errorf("%+v", f)
				}
			}
		})
	}
}

// TestF100_ListenerKilled kills the connection for LISTEN, and checks that the
// client listens again and reports a gap.
func TestF100_ListenerKilled(t *testing.T) {
	s := servers.SharedPostgres(t)
	url := s.URL("postgres", own())
	d, e := openOn(t, url), openOn(t, url)
	pushed := make(chan string, 10)
	if err := e.Watch(context.Background(), func(id string, _ driver.Status) { pushed <- id }); err != nil {
		t.Fatal(err)
	}
	for s.Value(t, "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE query = 'SELECT pg_backend_pid()' "+
		"AND pid <> pg_backend_pid() AND application_name = 'holdfast'") == 0 {
		time.Sleep(time.Millisecond)
	}
	if id := <-pushed; id != "" {
		t.Errorf("told %q first", id)
	}
	sqlcases.HandsOff(t, d, e, pushed, 1)
}

// TestF64_ManyLocksSmallPool holds many locks, and waits many times in one
// queue, with a pool of four: 10,000 and 1,000 with HOLDFAST_TEST_FULL.
func TestF64_ManyLocksSmallPool(t *testing.T) {
	sqlcases.ManyTickets(t, openOn(t, servers.SharedPostgres(t).URL("postgres", own()+"&pool_max_conns=4")))
}
