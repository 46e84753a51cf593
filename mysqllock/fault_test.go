package mysqllock

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

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
	s := servers.MariaDB(t, servers.MariaDBOptions{})
	outageOf(t, s, s.URL("holdfast", "")).Survive(t, func() { s.Restart(t) }, func() { s.Crash(t) })
}

// outageOf describes an outage of a server that has no other locks.
func outageOf(t *testing.T, s *servers.MariaDBServer, url string) sqlcases.Outage {
	return sqlcases.Outage{
		Open:  func() driver.Driver { return openOn(t, url) },
		Waits: func() bool { return s.Value(t, "SELECT count(*) FROM holdfast_ticket") > 0 },
		Held:  func() int64 { return s.Value(t, "SELECT held FROM holdfast_line") },
	}
}

// TestF97_KilledConnections kills connections again and again, in any step. It
// checks that no call returns an error and that the count is exact.
func TestF97_KilledConnections(t *testing.T) {
	s := servers.MariaDB(t, servers.MariaDBOptions{})
	url := s.URL("holdfast", "max_conns=3")
	sqlcases.CountsWhileKilled(t, func() driver.Driver { return openOn(t, url) }, func() int64 {
		return int64(s.KillConnections(t, fmt.Sprintf("id %% 3 = %d", rand.IntN(3))))
	})
}

// TestF92_F93_EveryIsolationLevelCountsExactly uses sessions of every isolation
// level. It checks that clients count exactly and that no call returns an
// error.
func TestF92_F93_EveryIsolationLevelCountsExactly(t *testing.T) {
	s := servers.SharedMariaDB(t)
	variable := "tx_isolation"
	if s.MySQL {
		variable = "transaction_isolation"
	}
	for _, level := range []string{"READ-UNCOMMITTED", "READ-COMMITTED", "REPEATABLE-READ", "SERIALIZABLE"} {
		url := s.URL("holdfast", own())
		sqlcases.CountsExactly(t, 3, 4, 4, func() driver.Driver {
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

// TestClassesOfServerErrors checks the classes of errors that the server may
// return.
//
// Covers: F94, F96.
func TestClassesOfServerErrors(t *testing.T) {
	s := servers.MariaDB(t, servers.MariaDBOptions{})
	d := openOn(t, s.URL("holdfast", "max_conns=2"))
	s.Exec(t, "GRANT SELECT, INSERT, UPDATE, DELETE ON locks.* TO app@'%'")
	app := openOn(t, s.URL("app", "max_conns=1"))
	held := ticket(1, "held")
	mustJoin(t, d, held, driver.Held)

	// F94: somebody else has the row locked. The server gives up first, which
	// it would do only after 50 seconds without the driver's setting.
	ctx := context.Background()
	db := poolOf(t, s.URL("holdfast", ""), nil)
	tx, err := db.Begin()
	if err == nil {
		_, err = tx.Exec("UPDATE holdfast_line SET held = held + 0, due = due - 1")
	}
	if err != nil {
		t.Fatal(err)
	}
	sqlcases.RequestsFail(t, d, held, 20*time.Second, driver.NotDone, "1205")
	short, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
	defer cancel()
	if _, err := d.Join(short, ticket(3, "held"), true); err == nil || short.Err() == nil {
		t.Errorf("a locked row, for 200 ms: %v", err)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}

	// F96: read-only, as after a failover, for users who are no administrators.
	s.Exec(t, "SET GLOBAL read_only = 1")
	sqlcases.RequestsFail(t, app, held, 20*time.Second, driver.Unavailable, "accepts no writes")
	findings, err := app.Check(ctx)
	if err != nil || findings[len(findings)-1].Level != driver.Problem || findings[len(findings)-1].Topic != "writes" {
		t.Errorf("the doctor on a read-only server: %v, %v", findings, err)
	}
	s.Exec(t, "SET GLOBAL read_only = 0")
	if p := mustRenew(t, app, held); p.State != driver.Held {
		t.Errorf("afterwards the hold is %v", p.State)
	}

	// No connection is left, for requests or for wake-ups.
	s.Exec(t, "CREATE USER few@'%' IDENTIFIED BY '"+servers.MariaDBPassword+"' WITH MAX_USER_CONNECTIONS 1")
	s.Exec(t, "GRANT SELECT, INSERT, UPDATE, DELETE ON locks.* TO few@'%'")
	few := openOn(t, s.URL("few", ""))
	_, err = Open(ctx, s.URL("few", ""))
	if driver.ClassOf(err) != driver.Unavailable || !strings.Contains(err.Error(), "the server has too many clients") {
		t.Errorf("no connection left: %v", err)
	}
	if err := few.Watch(ctx, func(string, driver.Status) {}); driver.ClassOf(err) != driver.Unavailable || few.db.tables.PushesArrive.Load() {
		t.Errorf("Watch without a connection: %v", err)
	}
	if p := mustJoin(t, few, ticket(5, "held"), driver.Waiting); p.Recheck > sqlqueue.PaceLast {
		t.Errorf("recheck after %v", p.Recheck)
	}

	// A table was dropped: one request reports it, and the next one creates it
	// again.
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

// TestF98_IdleInTransaction stops a process in the middle of a transaction, and
// checks that the server ends the transaction and that the queue goes on.
//
// Covers: F12.
func TestF98_IdleInTransaction(t *testing.T) {
	d := openOn(t, servers.SharedMariaDB(t).URL("holdfast", own()))
	sqlcases.StoppedInTransaction(t, d, d.db.tables, idleMax*time.Second)
}

// TestF100_LostWakeupConnectionIsReplaced kills the wake-up connection, and
// checks that the client makes another and reports a gap, and that an
// interruption whose message is written always arrives.
func TestF100_LostWakeupConnectionIsReplaced(t *testing.T) {
	s := servers.SharedMariaDB(t)
	url := s.URL("holdfast", own())
	d, e := openOn(t, url), openOn(t, url)
	told := make(chan string, 10)
	if err := e.Watch(context.Background(), func(id string, _ driver.Status) { told <- id }); err != nil {
		t.Fatal(err)
	}
	checkWakeups(t, 20, func(i int) { sqlcases.HandsOff(t, d, e, told, 2*i) })
	holder := fmt.Sprintf("id = is_used_lock('%s')", e.db.tables.Name)
	for s.KillConnections(t, holder) == 0 {
		time.Sleep(time.Millisecond)
	}
	for gaps := 0; gaps < 2; { // when the connection ends, and when there is another
		if id := <-told; id == "" { // not a message that was read, and not removed yet
			gaps++
		}
	}
	sqlcases.HandsOff(t, d, e, told, 200)
}

// checkWakeups makes n hand-offs, and checks that most of them are told by
// interruptions: without these a waiter reads its message after sleepMax. The
// median does not depend on single pauses of the machine.
func checkWakeups(t *testing.T, n int, handOff func(i int)) {
	t.Helper()
	took := make([]time.Duration, n)
	for i := range n {
		start := time.Now()
		handOff(i)
		took[i] = time.Since(start)
	}
	slices.Sort(took)
	if took[n/2] > sleepMax/2 {
		t.Errorf("%d wake-ups took %v: interruptions do not arrive", n, took)
	}
}

// TestUnreachableWakeupIsNoticed checks that a client notices when
// interruptions do not reach it: here other clients are another user, without
// the right to interrupt its statements.
func TestUnreachableWakeupIsNoticed(t *testing.T) {
	s := servers.SharedMariaDB(t)
	url := s.URL("holdfast", own())
	d := openOn(t, url)
	s.Exec(t, "CREATE USER deaf@'%' IDENTIFIED BY '"+servers.MariaDBPassword+"'")
	s.Exec(t, "GRANT SELECT, INSERT, UPDATE, DELETE ON locks.* TO deaf@'%'")
	waker := openOn(t, url) // of the user holdfast, while the pool is of another
	quietly := poolOf(t, s.URL("deaf", ""), func(c *mysql.Config) { c.InterpolateParams, c.MultiStatements = true, true })
	e := newDriver(quietly, waker.db.pool, false, &Options{TablePrefix: prefixOf(url)})
	defer e.Close()
	gaps := make(chan struct{}, 10)
	if err := e.Watch(context.Background(), func(id string, _ driver.Status) {
		if id == "" {
			gaps <- struct{}{}
		}
	}); err != nil {
		t.Fatal(err)
	}
	<-gaps
	if e.db.tables.PushesArrive.Load() || !e.wakeup.noPush.Load() {
		t.Error("it assumes that interruptions reach it")
	}
	a, b := ticket(1, "n"), ticket(2, "n")
	mustJoin(t, d, a, driver.Held)
	if p := mustJoin(t, e, b, driver.Waiting); p.Recheck > sqlqueue.PaceLast {
		t.Errorf("recheck after %v", p.Recheck)
	}
	mustLeave(t, d, a)
	if p := mustRenew(t, e, b); p.State != driver.Held {
		t.Errorf("the waiter is %v", p.State)
	}
}
