package pglock

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivertest"
	"github.com/holdfast-go/holdfast/internal/testkit/multiproc"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
	"github.com/holdfast-go/holdfast/internal/testkit/sqlcases"
)

func TestMain(m *testing.M) {
	multiproc.Child(func(target string) (driver.Driver, error) { return Open(context.Background(), target) })
	flag.Parse()
	if err := flag.Set("test.parallel", "8"); err != nil { // the tests wait more than they work
		panic(err)
	}
	servers.Main(m)
}

var (
	own       = sqlcases.OwnTables
	prefixOf  = sqlcases.PrefixOf
	ticket    = sqlcases.Ticket
	mustJoin  = sqlcases.Join
	mustRenew = sqlcases.Renew
	mustLeave = sqlcases.Leave
)

// openOn opens a client that the test closes.
func openOn(t drivertest.T, url string) *Driver {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	d, err := Open(ctx, url)
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

// harness describes a server of the test's own to the suite. The clock is the
// server's, plus a number in a table that StepClock changes.
func harness(t *testing.T) drivertest.Harness {
	s := servers.Postgres(t, servers.PostgresOptions{})
	s.Exec(t, "CREATE TABLE step (us bigint)", "INSERT INTO step VALUES (0)", "CREATE SCHEMA earlier")
	const options = "pool_max_conns=4&search_path=earlier,pg_catalog,public&schema=public"
	url := s.URL("postgres", options)
	stepped := func(url string) (driver.Driver, error) {
		config, o, err := parseURL(url)
		if err != nil {
			return nil, err
		}
		o.clock = "(" + clockNow + " + (SELECT us FROM step))"
		d, err := open(context.Background(), config, o)
		if err != nil {
			return nil, err
		}
		return d, nil
	}
	return drivertest.Harness{
		TellsLeft: true,
		Open: func(dt drivertest.T) driver.Driver {
			d, err := stepped(url)
			if err != nil {
				dt.Fatalf("Open: %v", err)
			}
			return d
		},
		Rights: rights(t, s, func(user string) (driver.Driver, error) { return stepped(s.URL(user, options)) }),
		FailPushes: func(drivertest.T) func() {
			// In a schema that is earlier in the search path than the server's
			// own.
			s.Exec(t, "CREATE FUNCTION earlier.pg_notify(text, text) RETURNS void LANGUAGE plpgsql AS "+
				"$$ BEGIN RAISE 'too many notifications in the NOTIFY queue' USING ERRCODE = '54000'; END $$")
			return func() { s.Exec(t, "DROP FUNCTION earlier.pg_notify(text, text)") }
		},
		OpenAt: func(ctx context.Context, address string) (driver.Driver, error) {
			return Open(ctx, "postgres://app@"+address+"/locks")
		},
		TTL:      2 * time.Second,
		Slack:    2 * time.Second,
		Waiters:  300,
		Pause:    func(drivertest.T) func() { return s.Pause(t) },
		Restart:  func(drivertest.T) { s.Restart(t) },
		LoseData: func(drivertest.T) { s.Exec(t, "TRUNCATE holdfast_line, holdfast_ticket, holdfast_grave") },
		Snapshot: func(drivertest.T) func() {
			tables := []string{"store", "line", "ticket", "grave"}
			for _, name := range tables {
				s.Exec(t, "DROP TABLE IF EXISTS old_"+name, "CREATE TABLE old_"+name+" AS TABLE holdfast_"+name)
			}
			return func() {
				for _, name := range tables {
					s.Exec(t, "TRUNCATE holdfast_"+name, "INSERT INTO holdfast_"+name+" TABLE old_"+name)
				}
			}
		},
		StepClock: func(_ drivertest.T, d time.Duration) {
			s.Exec(t, fmt.Sprintf("UPDATE step SET us = us + %d", d.Microseconds()))
		},
		LockRow: func(_ drivertest.T, name string) func() {
			st := newStranger(t, admin(t, url), url)
			if err := st.Lock(name); err != nil {
				t.Fatal(err)
			}
			return st.End
		},
		Rows: func(drivertest.T) int { return int(s.Value(t, "SELECT count(*) FROM holdfast_line")) },
		Connections: func(drivertest.T) int {
			return int(s.Value(t, "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'holdfast'"))
		},
	}
}

func TestDriverConformance(t *testing.T) { drivertest.Run(t, harness(t)) }

// shared describes clients of the shared server, with more options.
func shared(t *testing.T, more string) drivertest.Harness {
	url := servers.SharedPostgres(t).URL("postgres", own()+more)
	return drivertest.Harness{
		TellsLeft: true,
		Open:      func(dt drivertest.T) driver.Driver { return openOn(dt, url) },
		TTL:       4 * time.Second,
	}
}

// TestLocks runs the suite of locks. Tests that run at the same time as others begin after
// it, so it may pause the server.
func TestLocks(t *testing.T) {
	h := shared(t, "&pool_max_conns=2")
	h.Pause = func(drivertest.T) func() { return servers.SharedPostgres(t).Pause(t) }
	drivertest.RunLocks(t, h)
}

func TestLocksAcrossProcesses(t *testing.T) {
	multiproc.Run(t, multiproc.Store{Target: servers.SharedPostgres(t).URL("postgres", own()), TTL: 2 * time.Second})
}

// behind describes clients that reach the shared server through a pooler in
// transaction mode.
func behind(t *testing.T, more string) drivertest.Harness {
	b := servers.PgBouncer(t, servers.SharedPostgres(t), "transaction", 8)
	url := b.URL("postgres", own()+more)
	return drivertest.Harness{
		TellsLeft: true,
		Open:      func(dt drivertest.T) driver.Driver { return openOn(dt, url) },
		TTL:       2 * time.Second,
		Waiters:   100, Clients: 3, Rounds: 5,
		Slack: 2 * time.Second,
	}
}

// everyCase makes the second run of the suite, behind a pooler, complete.
var everyCase = flag.Bool("pglock.all", false, "run the whole suite behind a pooler, too")

// except returns reasons to skip all cases but those whose names begin with one
// of kept.
func except(kept ...string) map[string]string {
	out := make(map[string]string)
	for _, c := range drivertest.Cases() {
		if !*everyCase && !slices.ContainsFunc(kept, func(k string) bool { return strings.HasPrefix(c.Name, k) }) {
			out[c.Name] = "run without a pooler, by the same statements; -pglock.all runs it here too"
		}
	}
	return out
}

// TestConformanceBehindPooler sends requests through the pooler, and listens
// past it: otherwise the suite would wait for pushes that the driver's Traits
// promise.
//
// Statements and their decisions are the same as without a pooler. A pooler
// changes which of the server's connections a statement reaches, the state that
// sessions keep, and how an abandoned request ends; and nothing is prepared.
// The chosen cases cover each kind of request, contending transactions of
// several round trips, pushes, and requests that are abandoned or closed.
//
// Covers: F99.
func TestConformanceBehindPooler(t *testing.T) {
	h := behind(t, fmt.Sprintf("&listen=127.0.0.1:%d", servers.SharedPostgres(t).Port))
	h.LeaveOut = except("join-free", "join-again", "leave-answers", "leave-batch", "leave-at-ones-turn", "push-",
		"renew-answers", "renew-against-leave", "replaces-shared", "owner-shares", "owner-waits", "break-held", "inspect", "names",
		"nasty-owners", "identity", "check", "ended-context", "close", "recheck", "dead-holder",
		"hammer-mutex", "hammer-readers", "hammer-cancel", "hammer-faults")
	drivertest.Run(t, h)
}

// admin returns a connection past the driver.
func admin(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	c, err := pgx.Connect(context.Background(), strings.SplitN(url, "?", 2)[0])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(context.Background()) })
	return c
}
