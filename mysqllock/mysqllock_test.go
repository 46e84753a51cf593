package mysqllock

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivertest"
	"github.com/holdfast-go/holdfast/internal/testkit/multiproc"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
	"github.com/holdfast-go/holdfast/internal/testkit/sqlcases"
)

func TestMain(m *testing.M) {
	multiproc.Child(func(target string) (driver.Driver, error) { return Open(context.Background(), target) })
	if url := os.Getenv(asSeller); url != "" {
		if err := sell(url); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	}
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

// poolOf returns a user's pool, with the library's defaults but for the changes
// of edit.
func poolOf(t drivertest.T, url string, edit func(*mysql.Config)) *sql.DB {
	t.Helper()
	config, _, err := parseURL(url)
	if err != nil {
		t.Fatalf("%v", err)
	}
	config.InterpolateParams, config.MultiStatements, config.Params = false, false, nil
	if edit != nil {
		edit(config)
	}
	connector, err := mysql.NewConnector(config)
	if err != nil {
		t.Fatalf("%v", err)
	}
	db := sql.OpenDB(connector)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// harness describes a server of the test's own to the suite. The clock is the
// server's, plus a number in a table that StepClock changes.
func harness(t *testing.T) drivertest.Harness {
	s := servers.MariaDB(t, servers.MariaDBOptions{})
	s.Exec(t, "CREATE TABLE step (us bigint PRIMARY KEY)")
	s.Exec(t, "INSERT INTO step VALUES (0)")
	url := s.URL("holdfast", "max_conns=4")
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
		Rights: rights(t, s, func(user string) (driver.Driver, error) { return stepped(s.URL(user, "max_conns=4")) }),
		FailPushes: func(drivertest.T) func() {
			s.Exec(t, "CREATE TRIGGER mute BEFORE INSERT ON holdfast_post FOR EACH ROW "+
				"SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = 1114, MESSAGE_TEXT = 'The table holdfast_post is full'")
			return func() { s.Exec(t, "DROP TRIGGER mute") }
		},
		OpenAt: func(ctx context.Context, address string) (driver.Driver, error) {
			return Open(ctx, "mysql://app@"+address+"/locks")
		},
		TTL:      2 * time.Second,
		Slack:    2 * time.Second,
		Waiters:  300,
		Pause:    func(drivertest.T) func() { s.Pause(t); return func() { s.Resume(t) } },
		Restart:  func(drivertest.T) { s.Restart(t) },
		LoseData: func(drivertest.T) { empty(t, s) },
		Snapshot: func(drivertest.T) func() {
			for _, name := range tables {
				s.Exec(t, "DROP TABLE IF EXISTS old_"+name)
				s.Exec(t, "CREATE TABLE old_"+name+" AS SELECT * FROM holdfast_"+name)
			}
			return func() {
				empty(t, s)
				s.Exec(t, "DELETE FROM holdfast_store")
				for _, name := range tables {
					s.Exec(t, "INSERT INTO holdfast_"+name+" SELECT * FROM old_"+name)
				}
			}
		},
		StepClock: func(_ drivertest.T, d time.Duration) {
			s.Exec(t, fmt.Sprintf("UPDATE step SET us = us + %d", d.Microseconds()))
		},
		LockRow: func(_ drivertest.T, name string) func() {
			st := newStranger(t, poolOf(t, url, nil), url)
			if err := st.Lock(name); err != nil {
				t.Fatal(err)
			}
			return st.End
		},
		Rows: func(drivertest.T) int { return int(s.Value(t, "SELECT count(*) FROM holdfast_line")) },
		Connections: func(drivertest.T) int {
			return int(s.Value(t, "SELECT count(*) FROM information_schema.processlist WHERE user = 'holdfast'"))
		},
	}
}

func empty(t *testing.T, s *servers.MariaDBServer) {
	for _, name := range tables[1:] {
		s.Exec(t, "DELETE FROM holdfast_"+name)
	}
}

func TestDriverConformance(t *testing.T) { drivertest.Run(t, harness(t)) }

// shared describes clients of the shared server, with more options.
func shared(t *testing.T, more string) drivertest.Harness {
	url := servers.SharedMariaDB(t).URL("holdfast", own()+more)
	return drivertest.Harness{
		TellsLeft: true,
		Open:      func(dt drivertest.T) driver.Driver { return openOn(dt, url) },
		TTL:       4 * time.Second,
	}
}

// TestLocks runs the suite of locks. Tests that run at the same time as others begin after
// it, so it may pause the server.
func TestLocks(t *testing.T) {
	h := shared(t, "")
	h.Pause = func(drivertest.T) func() {
		s := servers.SharedMariaDB(t)
		s.Pause(t)
		return func() { s.Resume(t) }
	}
	drivertest.RunLocks(t, h)
}

func TestLocksAcrossProcesses(t *testing.T) {
	multiproc.Run(t, multiproc.Store{Target: servers.SharedMariaDB(t).URL("holdfast", own()), TTL: 2 * time.Second})
}

// everyCase makes the second run of the suite, on a user's pool, complete but
// for the cases that count tickets.
var everyCase = flag.Bool("mysqllock.all", false, "run the whole suite on a pool of the user's, too")

// except returns reasons to skip all cases but those whose names begin with one
// of kept, and to skip the cases with too many tickets.
func except(kept ...string) map[string]string {
	out := map[string]string{"names-many": tooMany, "renew-200": tooMany, "many-dead": tooMany, "hammer-lines": tooMany}
	for _, c := range drivertest.Cases() {
		if !*everyCase && out[c.Name] == "" && !slices.ContainsFunc(kept, func(k string) bool { return strings.HasPrefix(c.Name, k) }) {
			out[c.Name] = "run on connections of our own, by the same statements; -mysqllock.all runs it here too"
		}
	}
	return out
}

// TestConformanceOfPools runs the suite on a user's pool, whose sessions have
// every setting other than the driver's: each statement is sent alone, within
// explicit transactions.
//
// Statements and their decisions are the same as on the driver's own
// connections. A pool changes how they are sent, prepared and one by one, the
// settings of sessions, and the origin of the wake-up connection. The chosen
// cases cover each kind of request, contending transactions, pushes, and
// requests that are abandoned or closed.
//
// Covers: F25, F92, F99.
func TestConformanceOfPools(t *testing.T) {
	s := servers.SharedMariaDB(t)
	level := "tx_isolation"
	if s.MySQL {
		level = "transaction_isolation"
	}
	url := s.URL("holdfast", own())
	drivertest.Run(t, drivertest.Harness{
		Open: func(dt drivertest.T) driver.Driver {
			db := poolOf(dt, url, func(c *mysql.Config) {
				c.Params = map[string]string{level: "'SERIALIZABLE'", "autocommit": "0", "innodb_lock_wait_timeout": "100",
					"sql_mode": "'ANSI,NO_BACKSLASH_ESCAPES'", "time_zone": "'+05:30'"}
			})
			db.SetMaxOpenConns(4)
			d, err := New(db, &Options{TablePrefix: prefixOf(url)})
			if err != nil {
				dt.Fatalf("New: %v", err)
			}
			return withPool{d, db}
		},
		TTL:     2 * time.Second,
		Slack:   2 * time.Second,
		Waiters: 50, Clients: 3, Rounds: 5,
		LeaveOut: except("join-free", "join-again", "join-renews", "leave-answers", "leave-batch", "leave-at-ones-turn", "push-",
			"renew-answers", "renew-against-leave", "replaces-shared", "owner-shares", "owner-waits", "break-held", "inspect", "names",
			"nasty-", "identity", "check", "ended-context", "close", "recheck", "dead-holder", "tokens-grow", "units",
			"hammer-mutex", "hammer-readers", "hammer-cancel", "hammer-faults"),
	})
}

const tooMany = "many tickets, of which each costs twenty round trips here; TestDriverConformance has it"

// withPool is a driver that also closes its pool: the suite counts goroutines.
type withPool struct {
	*Driver
	db *sql.DB
}

// Close implements driver.Driver.
func (d withPool) Close() error { return errors.Join(d.Driver.Close(), d.db.Close()) }
