package pglock

import (
	"testing"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/backends"
	"github.com/holdfast-go/holdfast/internal/sqlline/linetest"
)

// Sessions of time zones that are 26 hours apart: a lease of one is as long for
// the other.
func TestF25_TimeZones(t *testing.T) {
	s := backends.SharedPostgres(t)
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

// The last token there is.
func TestF67_LastToken(t *testing.T) {
	linetest.LastToken(t, openOn(t, backends.SharedPostgres(t).URL("postgres", own())))
}

// A process is stopped in the middle of a transaction: the server ends it, and
// the line goes on.
//
// Covers: F12.
func TestF98_IdleInTransaction(t *testing.T) {
	t.Parallel()
	d := openOn(t, backends.SharedPostgres(t).URL("postgres", own()))
	linetest.StoppedInside(t, d, d.r, idleMax)
}
