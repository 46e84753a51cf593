package pglock

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/backends"
	"github.com/holdfast-go/holdfast/internal/sqlline"
	"github.com/holdfast-go/holdfast/internal/sqlline/linetest"
)

// The server is restarted, and crashes, while a lock is held and waited
// for: the hold survives, the wait goes on, tokens grow.
//
// Covers: F26.
func TestF95_ServerRestarts(t *testing.T) {
	s := backends.Postgres(t, backends.PostgresOptions{})
	outageOf(t, s, s.URL("postgres", "")).Survived(t, func() { s.Restart(t) }, func() { s.Crash(t) })
}

// outageOf is one of a server with the only locks that there are.
func outageOf(t *testing.T, s *backends.PostgresServer, url string) linetest.Outage {
	return linetest.Outage{
		Open:  func() driver.Driver { return openOn(t, url) },
		Waits: func() bool { return s.Value(t, "SELECT count(*) FROM holdfast_ticket") > 0 },
		Held:  func() int64 { return s.Value(t, "SELECT held FROM holdfast_line") },
	}
}

// Connections are killed all the time, in whatever step they are. Nobody
// sees an error, and the count is exact.
func TestF97_KilledConnections(t *testing.T) {
	s := backends.Postgres(t, backends.PostgresOptions{})
	url := s.URL("postgres", "pool_max_conns=3")
	linetest.Killed(t, func() driver.Driver { return openOn(t, url) }, func() int64 {
		return s.Value(t, "SELECT count(pg_terminate_backend(pid)) FROM (SELECT pid FROM pg_stat_activity "+
			"WHERE application_name = 'holdfast' ORDER BY random() LIMIT 1) k")
	})
}

// A database whose default isolation is stricter: a client counts
// right, and no user sees an error.
func TestF92_F93_StrictIsolation(t *testing.T) {
	s := backends.SharedPostgres(t)
	for _, level := range []string{"repeatable read", "serializable"} {
		role := "strict_" + level[:4]
		s.Exec(t, "CREATE ROLE "+role+" SUPERUSER LOGIN")
		s.Exec(t, "ALTER ROLE "+role+" SET default_transaction_isolation = '"+level+"'")
		url := s.URL(role, own())
		linetest.Exact(t, 3, 4, 5, func() driver.Driver { return openOn(t, url) }, nil)
	}
}

// What the server may say, and the class it is given.
//
// Covers: F94, F96.
func TestServerSays(t *testing.T) {
	s := backends.Postgres(t, backends.PostgresOptions{})
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
	linetest.Fails(t, d, held, time.Second, driver.NotDone, "timeout")
	if err := tx.Rollback(ctx); err != nil {
		t.Fatal(err)
	}

	// F96: read-only, as after a failover.
	s.Exec(t, "ALTER DATABASE postgres SET default_transaction_read_only = on")
	d.pool.Reset()
	linetest.Fails(t, d, held, 10*time.Second, driver.Unavailable, "takes no writes")
	findings, err := d.Check(ctx)
	if err != nil || findings[len(findings)-1].Level != driver.Problem {
		t.Errorf("the doctor on a read-only server: %v, %v", findings, err)
	}
	// This connection is older than the setting.
	if _, err := c.Exec(ctx, "ALTER DATABASE postgres RESET default_transaction_read_only"); err != nil {
		t.Fatal(err)
	}
	// Connections made meanwhile are read-only still, and found out one by one.
	for limit := time.Now().Add(20 * time.Second); ; {
		p, err := d.Renew(ctx, []driver.Ref{{Ticket: held, State: driver.Held}})
		if err == nil && p[0].Err == nil && p[0].State == driver.Held {
			break
		}
		if time.Now().After(limit) {
			t.Fatalf("afterwards: %v, %v", p, err)
		}
	}

	// No connection left.
	s.Exec(t, "ALTER ROLE app CONNECTION LIMIT 0")
	_, err = Open(ctx, s.URL("app", ""))
	if driver.ClassOf(err) != driver.Unavailable || !strings.Contains(err.Error(), "no connection left") {
		t.Errorf("no connection left: %v", err)
	}

	// A table was dropped: said once, and made again for the next request.
	s.Exec(t, "DROP TABLE holdfast_ticket, holdfast_line, holdfast_grave, holdfast_store")
	_, err = d.Join(ctx, ticket(3, "n"), true)
	if driver.ClassOf(err) != driver.Refused || !strings.Contains(err.Error(), "missing") {
		t.Errorf("without tables: %v", err)
	}
	mustJoin(t, d, ticket(4, "n"), driver.Held)
}

// Through a pooler in transaction mode LISTEN is dead, which is noticed,
// and waits end all the same; with the way past it, and in session mode,
// pushes flow.
func TestF99_Pooler(t *testing.T) {
	s := backends.SharedPostgres(t)
	transaction := backends.PgBouncer(t, s, "transaction", 4)
	session := backends.PgBouncer(t, s, "session", 20)
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
			told := make(chan string, 10)
			if err := e.Watch(context.Background(), func(id string, _ driver.Place) { told <- id }); err != nil {
				t.Fatal(err)
			}
			if e.r.Hears.Load() != c.hears {
				t.Fatalf("it hears: %v", !c.hears)
			}
			a, b := ticket(1, "n"), ticket(2, "n")
			mustJoin(t, d, a, driver.Held)
			p := mustJoin(t, e, b, driver.Waiting)
			if quick := p.Recheck <= sqlline.PaceLast; quick == c.hears {
				t.Errorf("recheck after %v", p.Recheck)
			}
			mustLeave(t, d, a)
			if c.hears {
				if id := <-told; id != b.ID {
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

// The connection for LISTEN is killed: the client listens again, and
// says that there was a gap.
func TestF100_ListenerKilled(t *testing.T) {
	s := backends.SharedPostgres(t)
	url := s.URL("postgres", own())
	d, e := openOn(t, url), openOn(t, url)
	told := make(chan string, 10)
	if err := e.Watch(context.Background(), func(id string, _ driver.Place) { told <- id }); err != nil {
		t.Fatal(err)
	}
	for s.Value(t, "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE query = 'SELECT pg_backend_pid()' "+
		"AND pid <> pg_backend_pid() AND application_name = 'holdfast'") == 0 {
		time.Sleep(time.Millisecond)
	}
	if id := <-told; id != "" {
		t.Errorf("told %q first", id)
	}
	linetest.HandedOn(t, d, e, told, 1)
}

// Many locks held and many waiters on one line, with a pool of four. In full,
// which HOLDFAST_TEST_FULL asks for, that is 10,000 and 1,000.
func TestF64_Many(t *testing.T) {
	linetest.Many(t, openOn(t, backends.SharedPostgres(t).URL("postgres", own()+"&pool_max_conns=4")))
}
