package pglock

import (
	"fmt"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
	"github.com/holdfast-go/holdfast/internal/testkit/sqlcases"
)

// TestF25_TimeZones checks that a lease has the same length for sessions whose
// time zones are 26 hours apart.
func TestF25_TimeZones(t *testing.T) {
	s := servers.SharedPostgres(t)
	prefix := own()
	zoned := func(role, zone string) *Driver {
		s.Exec(t, "CREATE ROLE "+role+" SUPERUSER LOGIN")
		s.Exec(t, "ALTER ROLE "+role+" SET timezone = '"+zone+"'")
		return openOn(t, s.URL(role, prefix))
	}
	east, west := zoned("zone_east", "Pacific/Kiritimati"), zoned("zone_west", "Etc/GMT+12")
	id := 0
	for _, pair := range [][2]*Driver{{east, west}, {west, east}} {
		id += 2
		held, waits := ticket(id, "n"), ticket(id+1, "n")
		first := mustJoin(t, pair[0], held, driver.Held)
		mustJoin(t, pair[1], waits, driver.Waiting)
		mustRenew(t, pair[1], waits)
		if p := mustRenew(t, pair[0], held); p.State != driver.Held {
			t.Errorf("the hold is %v", p.State)
		}
		mustLeave(t, pair[0], held)
		if p := mustRenew(t, pair[1], waits); p.State != driver.Held || p.Token <= first.Token {
			t.Errorf("the other is %v with token %d after %d", p.State, p.Token, first.Token)
		}
		mustLeave(t, pair[1], waits)
	}
}

// TestF67_LastToken checks queues that reach the last token.
func TestF67_LastToken(t *testing.T) {
	sqlcases.LastToken(t, openOn(t, servers.SharedPostgres(t).URL("postgres", own())))
}

// TestF98_IdleInTransaction stops a process in the middle of a transaction, and
// checks that the server ends the transaction and that the queue goes on.
//
// Covers: F12.
func TestF98_IdleInTransaction(t *testing.T) {
	t.Parallel()
	d := openOn(t, servers.SharedPostgres(t).URL("postgres", own()))
	sqlcases.StoppedInTransaction(t, d, d.db.tables, idleMax)
}

// TestF126_SessionModes checks that sessions whose settings change the meaning
// of statements or text decide as any other.
func TestF126_SessionModes(t *testing.T) {
	s := servers.SharedPostgres(t)
	prefix := own()
	e := openOn(t, s.URL("postgres", prefix))
	told := make(chan string, 10)
	if err := e.Watch(t.Context(), func(id string, _ driver.Status) { told <- id }); err != nil {
		t.Fatal(err)
	}
	for i, mode := range []string{
		"default_transaction_isolation = 'serializable'", "default_transaction_deferrable = on",
		"standard_conforming_strings = off", "backslash_quote = off", "escape_string_warning = off",
		"transform_null_equals = on", "bytea_output = 'escape'", "datestyle = 'SQL, DMY'", "extra_float_digits = -15",
		"client_encoding = 'LATIN1'", "plan_cache_mode = 'force_generic_plan'", "enable_indexscan = off", "jit_above_cost = 0",
		"statement_timeout = '20s'", "lock_timeout = '1ms'", "idle_in_transaction_session_timeout = '1ms'", "synchronous_commit = off",
	} {
		t.Run(mode, func(t *testing.T) {
			role := fmt.Sprint("mode_", i)
			s.Exec(t, "CREATE ROLE "+role+" SUPERUSER LOGIN")
			s.Exec(t, "ALTER ROLE "+role+" SET "+mode)
			d := openOn(t, s.URL(role, prefix))
			sqlcases.HandsOff(t, d, e, told, 100*i)
			name := "bytes ä'\\x41 " + mode
			a, b := ticket(100*i+10, name), ticket(100*i+11, name)
			a.Owner, a.Meta = "an owner\\'", "\\x41 and '"
			first := mustJoin(t, d, a, driver.Held)
			if p := mustJoin(t, e, b, driver.Waiting); p.Holder != a.Meta {
				t.Errorf("held by %q, want %q", p.Holder, a.Meta)
			}
			mustRenew(t, d, a)
			l, err := d.Inspect(t.Context(), name)
			if err != nil || len(l.Tickets) != 2 || l.Token != first.Token {
				t.Errorf("%+v, %v", l, err)
			}
			names := 0
			for got, err := range d.Names(t.Context(), "bytes") {
				if err != nil || got != name {
					t.Errorf("%q, %v", got, err)
				}
				names++
			}
			if names != 1 {
				t.Errorf("%d names", names)
			}
			mustLeave(t, d, a)
			if p := mustRenew(t, e, b); p.State != driver.Held || p.Token <= first.Token {
				t.Errorf("%+v after %+v", p, first)
			}
			mustLeave(t, e, b)
		})
	}
}
