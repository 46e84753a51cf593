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
	"github.com/holdfast-go/holdfast/drivertest/locktest"
	"github.com/holdfast-go/holdfast/drivertest/procs"
	"github.com/holdfast-go/holdfast/internal/backends"
	"github.com/holdfast-go/holdfast/internal/sqlline/linetest"
)

func TestMain(m *testing.M) {
	procs.Child(func(target string) (driver.Driver, error) { return Open(context.Background(), target) })
	flag.Parse()
	if err := flag.Set("test.parallel", "8"); err != nil { // the tests wait more than they work
		panic(err)
	}
	backends.Main(m)
}

var (
	own       = linetest.Own
	prefixOf  = linetest.PrefixOf
	ticket    = linetest.Ticket
	mustJoin  = linetest.Join
	mustRenew = linetest.Renew
	mustLeave = linetest.Leave
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
// server's, and a number in a table that StepClock adds to it.
func harness(t *testing.T) drivertest.Harness {
	s := backends.Postgres(t, backends.PostgresOptions{})
	s.Exec(t, "CREATE TABLE step (us bigint)")
	s.Exec(t, "INSERT INTO step VALUES (0)")
	url := s.URL("postgres", "pool_max_conns=4")
	return drivertest.Harness{
		Open: func(dt drivertest.T) driver.Driver {
			config, o, err := parseURL(url)
			if err != nil {
				dt.Fatalf("%v", err)
			}
			o.clock = "(" + clockNow + " + (SELECT us FROM step))"
			d, err := open(context.Background(), config, o)
			if err != nil {
				dt.Fatalf("Open: %v", err)
			}
			return d
		},
		TTL:      2 * time.Second,
		Slack:    2 * time.Second,
		Many:     300,
		Pause:    func(drivertest.T) func() { return s.Pause(t) },
		Restart:  func(drivertest.T) { s.Restart(t) },
		LoseData: func(drivertest.T) { s.Exec(t, "TRUNCATE holdfast_line, holdfast_ticket, holdfast_grave") },
		Snapshot: func(drivertest.T) func() {
			tables := []string{"store", "line", "ticket", "grave"}
			for _, name := range tables {
				s.Exec(t, "DROP TABLE IF EXISTS old_"+name)
				s.Exec(t, "CREATE TABLE old_"+name+" AS TABLE holdfast_"+name)
			}
			return func() {
				for _, name := range tables {
					s.Exec(t, "TRUNCATE holdfast_"+name)
					s.Exec(t, "INSERT INTO holdfast_"+name+" TABLE old_"+name)
				}
			}
		},
		StepClock: func(_ drivertest.T, d time.Duration) {
			s.Exec(t, fmt.Sprintf("UPDATE step SET us = us + %d", d.Microseconds()))
		},
		Connections: func(drivertest.T) int {
			return int(s.Value(t, "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'holdfast'"))
		},
	}
}

func TestConformance(t *testing.T) { drivertest.Run(t, harness(t)) }

// shared describes clients of the shared server, with more options.
func shared(t *testing.T, more string) drivertest.Harness {
	url := backends.SharedPostgres(t).URL("postgres", own()+more)
	return drivertest.Harness{
		Open: func(dt drivertest.T) driver.Driver { return openOn(dt, url) },
		TTL:  4 * time.Second,
	}
}

func TestLocks(t *testing.T) { locktest.Run(t, shared(t, "&pool_max_conns=2")) }

func TestProcesses(t *testing.T) {
	procs.Run(t, procs.Store{Target: backends.SharedPostgres(t).URL("postgres", own()), TTL: 2 * time.Second})
}

// behind describes clients that reach the shared server through a pooler in
// transaction mode.
func behind(t *testing.T, more string) drivertest.Harness {
	b := backends.PgBouncer(t, backends.SharedPostgres(t), "transaction", 8)
	url := b.URL("postgres", own()+more)
	return drivertest.Harness{
		Open: func(dt drivertest.T) driver.Driver { return openOn(dt, url) },
		TTL:  2 * time.Second,
		Many: 100, Clients: 3, Rounds: 5,
		Slack: 2 * time.Second,
	}
}

// everyCase makes the second run of the suite, behind a pooler, complete.
var everyCase = flag.Bool("pglock.all", false, "run the whole suite behind a pooler, too")

// except leaves out all cases but those whose names begin so.
func except(kept ...string) map[string]string {
	out := make(map[string]string)
	for _, c := range drivertest.Cases() {
		if !*everyCase && !slices.ContainsFunc(kept, func(k string) bool { return strings.HasPrefix(c.Name, k) }) {
			out[c.Name] = "run without a pooler, by the same statements; -pglock.all runs it here too"
		}
	}
	return out
}

// Requests go through the pooler, notifications past it: without them the suite
// would wait for pushes that the driver's Traits promise.
//
// Statements and what they decide are the same as without a pooler. A pooler
// changes on which of the server's connections a statement lands, what sessions
// remember, how a request that is given up ends, and that nothing is prepared.
// So these are cases with each kind of request, those whose transactions are
// several round trips long and are in one another's way, those with pushes, and
// those that give requests up or close.
//
// Covers: F99.
func TestConformanceBehindPooler(t *testing.T) {
	h := behind(t, fmt.Sprintf("&listen=127.0.0.1:%d", backends.SharedPostgres(t).Port))
	h.LeaveOut = except("join-free", "join-again", "leave-answers", "leave-batch", "leave-at-ones-turn", "push-",
		"renew-answers", "renew-against-leave", "replaces-shared", "owner-shares", "owner-waits", "break-held", "inspect", "names",
		"nasty-owners", "identity", "check", "ended-context", "close", "recheck", "dead-holder",
		"hammer-mutex", "hammer-readers", "hammer-cancel", "hammer-faults")
	drivertest.Run(t, h)
}

// admin is a connection past the driver.
func admin(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	c, err := pgx.Connect(context.Background(), strings.SplitN(url, "?", 2)[0])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(context.Background()) })
	return c
}
