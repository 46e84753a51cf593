package mysqllock

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/sqlqueue"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
	"github.com/holdfast-go/holdfast/internal/testkit/sqlcases"
)

// TestF124_LockWithoutWakeup takes away the wake-up connection: its address
// refuses connections, or is silent. It checks that locks still work, that
// waiters recheck often, and that pushes flow once there is a connection.
func TestF124_LockWithoutWakeup(t *testing.T) {
	t.Parallel()
	url := servers.SharedMariaDB(t).URL("holdfast", own())
	for what, dial := range map[string]func(ctx context.Context) error{
		"refused": func(context.Context) error { return errors.New("refused") },
		"silent":  func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			var there atomic.Bool
			wakeupPool := poolOf(t, url, func(c *mysql.Config) {
				c.InterpolateParams, c.MultiStatements = true, true
				c.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
					if !there.Load() {
						return nil, dial(ctx)
					}
					return new(net.Dialer).DialContext(ctx, network, addr)
				}
			})
			e := newDriver(poolOf(t, url, nil), wakeupPool, false, &Options{TablePrefix: prefixOf(url)})
			defer e.Close()
			d := openOn(t, url)
			told := make(chan string, 10)
			start := time.Now()
			watch := func() error { return e.Watch(t.Context(), func(id string, _ driver.Status) { told <- id }) }
			if err := watch(); err == nil || driver.ClassOf(err) == driver.Refused {
				t.Errorf("Watch says %v, and nobody learns that pushes are missing", err)
			}
			if took := time.Since(start); took > 2*driver.OpenLimit { // on a busy machine
				t.Errorf("Watch took %v", took)
			}
			name := "n" + what
			a, b := ticket(1, name), ticket(2, name)
			mustJoin(t, d, a, driver.Held)
			if p := mustJoin(t, e, b, driver.Waiting); p.Recheck > sqlqueue.PaceLast {
				t.Errorf("recheck after %v", p.Recheck)
			}
			there.Store(true)
			if err := watch(); err != nil {
				t.Fatal(err)
			}
			mustLeave(t, d, a)
			mustLeave(t, e, b)
			sqlcases.HandsOff(t, d, e, told, map[string]int{"refused": 10, "silent": 20}[what])
		})
	}
}

// TestF114_WakeupRefused checks that a client that lost the right to remove its
// messages does not reconnect again and again. It rechecks often instead, and
// gets pushes once it has the right again.
func TestF114_WakeupRefused(t *testing.T) {
	t.Parallel()
	s := servers.SharedMariaDB(t)
	url := s.URL("holdfast", own())
	d := openOn(t, url)
	s.Exec(t, "CREATE USER keeps@'%' IDENTIFIED BY '"+servers.MariaDBPassword+"'")
	grant := func(rights, table string) {
		s.Exec(t, "GRANT "+rights+" ON locks."+prefixOf(url)+table+" TO keeps@'%'")
	}
	for _, table := range tables {
		rights := "SELECT, INSERT, UPDATE, DELETE"
		if table == "post" {
			rights = "SELECT, INSERT, UPDATE"
		}
		grant(rights, table)
	}
	e := openOn(t, s.URL("keeps", "table_prefix="+prefixOf(url)))
	told := make(chan string, 1000)
	if err := e.Watch(t.Context(), func(id string, _ driver.Status) { told <- id }); err != nil {
		t.Fatal(err)
	}
	sqlcases.HandsOff(t, d, e, told, 1)
	until(t, e.wakeup.noPush.Load)
	for len(told) > 0 {
		<-told
	}
	a, b := ticket(3, "n"), ticket(4, "n")
	mustJoin(t, d, a, driver.Held)
	if p := mustJoin(t, e, b, driver.Waiting); p.Recheck > sqlqueue.PaceLast {
		t.Errorf("recheck after %v", p.Recheck)
	}
	mustLeave(t, d, a)
	mustLeave(t, e, b)
	<-told // the next connection, a second later
	until(t, e.wakeup.noPush.Load)
	if n := len(told); n > 4 {
		t.Errorf("%d gaps after one back-off", n)
	}
	grant("DELETE", "post")
	until(t, func() bool { return !e.wakeup.noPush.Load() && e.db.tables.PushesArrive.Load() })
	sqlcases.HandsOff(t, d, e, told, 5)
}

// TestF126_SessionModes checks that the driver's own sessions have modes of
// their own, whatever the server's are: under EMPTY_STRING_IS_NULL MariaDB
// refused every lock that had to wait.
func TestF126_SessionModes(t *testing.T) {
	t.Parallel()
	s := servers.MariaDB(t, servers.MariaDBOptions{})
	modes := []string{"ANSI", "NO_BACKSLASH_ESCAPES", "PAD_CHAR_TO_FULL_LENGTH", "HIGH_NOT_PRECEDENCE", "TRADITIONAL", ""}
	if !s.MySQL {
		modes = append(modes, "EMPTY_STRING_IS_NULL", "ORACLE", "MSSQL", "SIMULTANEOUS_ASSIGNMENT", "TIME_ROUND_FRACTIONAL")
	}
	for i, mode := range modes {
		s.Exec(t, "SET GLOBAL sql_mode = '"+mode+"'")
		d := openOn(t, s.URL("holdfast", ""))
		a, b := ticket(10*i, "n"), ticket(10*i+1, "n")
		mustJoin(t, d, a, driver.Held)
		if _, err := d.Join(t.Context(), b, true); err != nil {
			t.Errorf("mode %q: %v", mode, err)
		}
		mustLeave(t, d, a)
		if p := mustRenew(t, d, b); p.State != driver.Held {
			t.Errorf("mode %q: the waiter is %v", mode, p.State)
		}
		mustLeave(t, d, b)
	}
}
