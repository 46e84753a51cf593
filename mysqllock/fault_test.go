package mysqllock

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

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
	s := backends.MariaDB(t, backends.MariaDBOptions{})
	outageOf(t, s, s.URL("holdfast", "")).Survived(t, func() { s.Restart(t) }, func() { s.Crash(t) })
}

// outageOf is one of a server with the only locks that there are.
func outageOf(t *testing.T, s *backends.MariaDBServer, url string) linetest.Outage {
	return linetest.Outage{
		Open:  func() driver.Driver { return openOn(t, url) },
		Waits: func() bool { return s.Value(t, "SELECT count(*) FROM holdfast_ticket") > 0 },
		Held:  func() int64 { return s.Value(t, "SELECT held FROM holdfast_line") },
	}
}

// Connections are killed all the time, in whatever step they are. Nobody
// sees an error, and the count is exact.
func TestF97_KilledConnections(t *testing.T) {
	s := backends.MariaDB(t, backends.MariaDBOptions{})
	url := s.URL("holdfast", "max_conns=3")
	linetest.Killed(t, func() driver.Driver { return openOn(t, url) }, func() int64 {
		return int64(s.KillConnections(t, fmt.Sprintf("id %% 3 = %d", rand.IntN(3))))
	})
}

// Sessions of every isolation level: a client counts right, and no
// user sees an error.
func TestF92_F93_Isolation(t *testing.T) {
	s := backends.SharedMariaDB(t)
	variable := "tx_isolation"
	if s.MySQL {
		variable = "transaction_isolation"
	}
	for _, level := range []string{"READ-UNCOMMITTED", "READ-COMMITTED", "REPEATABLE-READ", "SERIALIZABLE"} {
		url := s.URL("holdfast", own())
		linetest.Exact(t, 3, 4, 4, func() driver.Driver {
			db := poolOf(t, url, func(c *mysql.Config) {
				c.InterpolateParams, c.MultiStatements = true, true
				c.Params = map[string]string{variable: "'" + level + "'"}
			})
			d, err := New(db, &Options{TablePrefix: prefixOf(url)})
			if err != nil {
				t.Fatal(err)
			}
			return d
		}, nil)
	}
}

// What the server may say, and the class it is given.
//
// Covers: F94, F96.
func TestServerSays(t *testing.T) {
	s := backends.MariaDB(t, backends.MariaDBOptions{})
	d := openOn(t, s.URL("holdfast", "max_conns=2"))
	s.Exec(t, "GRANT SELECT, INSERT, UPDATE, DELETE ON locks.* TO app@'%'")
	app := openOn(t, s.URL("app", "max_conns=1"))
	held := ticket(1, "held")
	mustJoin(t, d, held, driver.Held)

	// F94: somebody else has the row locked. The server gives up first, and
	// without our asking it would not for 50 seconds.
	ctx := context.Background()
	db := poolOf(t, s.URL("holdfast", ""), nil)
	tx, err := db.Begin()
	if err == nil {
		_, err = tx.Exec("UPDATE holdfast_line SET held = held + 0, due = due - 1")
	}
	if err != nil {
		t.Fatal(err)
	}
	linetest.Fails(t, d, held, 20*time.Second, driver.NotDone, "1205")
	short, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
	defer cancel()
	if _, err := d.Join(short, ticket(3, "held"), true); err == nil || short.Err() == nil {
		t.Errorf("a locked row, for 200 ms: %v", err)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}

	// F96: read-only, as after a failover, for who is no administrator.
	s.Exec(t, "SET GLOBAL read_only = 1")
	linetest.Fails(t, app, held, 20*time.Second, driver.Unavailable, "takes no writes")
	findings, err := app.Check(ctx)
	if err != nil || findings[len(findings)-1].Level != driver.Problem || findings[len(findings)-1].Topic != "writes" {
		t.Errorf("the doctor on a read-only server: %v, %v", findings, err)
	}
	s.Exec(t, "SET GLOBAL read_only = 0")
	if p := mustRenew(t, app, held); p.State != driver.Held {
		t.Errorf("afterwards the hold is %v", p.State)
	}

	// No connection left, for requests or for the bell.
	s.Exec(t, "CREATE USER few@'%' IDENTIFIED BY '"+backends.MariaDBPassword+"' WITH MAX_USER_CONNECTIONS 1")
	s.Exec(t, "GRANT SELECT, INSERT, UPDATE, DELETE ON locks.* TO few@'%'")
	few := openOn(t, s.URL("few", ""))
	_, err = Open(ctx, s.URL("few", ""))
	if driver.ClassOf(err) != driver.Unavailable || !strings.Contains(err.Error(), "no connection left") {
		t.Errorf("no connection left: %v", err)
	}
	if err := few.Watch(ctx, func(string, driver.Place) {}); err != nil || few.r.Hears.Load() {
		t.Errorf("Watch without a connection: %v", err)
	}
	if p := mustJoin(t, few, ticket(5, "held"), driver.Waiting); p.Recheck > sqlline.PaceLast {
		t.Errorf("recheck after %v", p.Recheck)
	}

	// A table was dropped: said once, and made again for the next request.
	s.Exec(t, "DROP TABLE holdfast_ticket, holdfast_line, holdfast_grave, holdfast_post, holdfast_store")
	_, err = d.Join(ctx, ticket(3, "n"), true)
	if driver.ClassOf(err) != driver.Refused || !strings.Contains(err.Error(), "missing") {
		t.Errorf("without tables: %v", err)
	}
	mustJoin(t, d, ticket(4, "n"), driver.Held)
	findings, err = d.Check(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range findings {
		t.Logf("%v: %s: %s", f.Level, f.Topic, f.Detail)
		if f.Level != driver.OK {
			t.Errorf("%+v", f)
		}
	}
}

// A process is stopped in the middle of a transaction: the server
// ends it, and the line goes on.
//
// Covers: F12.
func TestF98_IdleInTransaction(t *testing.T) {
	d := openOn(t, backends.SharedMariaDB(t).URL("holdfast", own()))
	linetest.StoppedInside(t, d, d.r, idleMax*time.Second)
}

// The bell's connection is killed: the client hangs another, and says
// that there was a gap. A ring whose message is there is heard in all cases.
func TestF100_Bell(t *testing.T) {
	s := backends.SharedMariaDB(t)
	url := s.URL("holdfast", own())
	d, e := openOn(t, url), openOn(t, url)
	told := make(chan string, 10)
	if err := e.Watch(context.Background(), func(id string, _ driver.Place) { told <- id }); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	for i := range 20 {
		linetest.HandedOn(t, d, e, told, 2*i)
	}
	if took := time.Since(start); took > 20*nap/2 {
		t.Errorf("20 rings took %v: they are not heard", took)
	}
	holder := fmt.Sprintf("id = is_used_lock('%s')", e.r.Name)
	for s.KillConnections(t, holder) == 0 {
		time.Sleep(time.Millisecond)
	}
	for gaps := 0; gaps < 2; gaps++ { // when it ends, and when there is another
		if id := <-told; id != "" {
			t.Errorf("told %q of the gap", id)
		}
	}
	linetest.HandedOn(t, d, e, told, 200)
}

// A client that is not heard notices: here because those who ring are another
// user, without the right to interrupt its statements.
func TestNotHeard(t *testing.T) {
	s := backends.SharedMariaDB(t)
	url := s.URL("holdfast", own())
	d := openOn(t, url)
	s.Exec(t, "CREATE USER deaf@'%' IDENTIFIED BY '"+backends.MariaDBPassword+"'")
	s.Exec(t, "GRANT SELECT, INSERT, UPDATE, DELETE ON locks.* TO deaf@'%'")
	bells := openOn(t, url) // of the user holdfast, while the pool is of another
	quietly := poolOf(t, s.URL("deaf", ""), func(c *mysql.Config) { c.InterpolateParams, c.MultiStatements = true, true })
	e := newDriver(quietly, bells.db, false, &Options{TablePrefix: prefixOf(url)})
	defer e.Close()
	gaps := make(chan struct{}, 10)
	if err := e.Watch(context.Background(), func(id string, _ driver.Place) {
		if id == "" {
			gaps <- struct{}{}
		}
	}); err != nil {
		t.Fatal(err)
	}
	<-gaps
	if e.r.Hears.Load() || !e.bell.deaf.Load() {
		t.Error("it takes itself for heard")
	}
	a, b := ticket(1, "n"), ticket(2, "n")
	mustJoin(t, d, a, driver.Held)
	if p := mustJoin(t, e, b, driver.Waiting); p.Recheck > sqlline.PaceLast {
		t.Errorf("recheck after %v", p.Recheck)
	}
	mustLeave(t, d, a)
	if p := mustRenew(t, e, b); p.State != driver.Held {
		t.Errorf("the waiter is %v", p.State)
	}
}
