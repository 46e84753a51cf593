package pglock

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/backends"
	"github.com/holdfast-go/holdfast/internal/sqlline"
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
	d := openOn(t, backends.SharedPostgres(t).URL("postgres", own()))
	for i, want := range []uint64{math.MaxInt64 - 1, math.MaxInt64} {
		last := ticket(10+i, "n")
		last.Floor = math.MaxInt64 - 1
		if p := mustJoin(t, d, last, driver.Held); p.Token != want {
			t.Errorf("token %d, want %d", p.Token, want)
		}
		mustLeave(t, d, last)
	}
	for i, floor := range []uint64{0, math.MaxInt64, math.MaxUint64} {
		tk := ticket(i+2, []string{"n", "n", "other"}[i])
		tk.Floor = floor
		if p, err := d.Join(context.Background(), tk, true); driver.ClassOf(err) != driver.Refused {
			t.Errorf("with a floor of %d: %+v, %v", floor, p, err)
		}
	}
}

// stopped is a driver whose transactions stand still before their end.
type stopped struct {
	*Driver
	inside chan error
}

// Tx implements sqlline.DB.
func (s stopped) Tx(ctx context.Context, f func(sqlline.Tx) ([]*sqlline.Stmt, error)) error {
	return s.Driver.Tx(ctx, func(tx sqlline.Tx) ([]*sqlline.Stmt, error) {
		last, err := f(tx)
		s.inside <- err
		time.Sleep(idleMax + time.Second)
		return last, err
	})
}

// A process is stopped in the middle of a transaction: the server ends it, and
// the line goes on.
//
// Covers: F12.
func TestF98_IdleInTransaction(t *testing.T) {
	t.Parallel()
	d := openOn(t, backends.SharedPostgres(t).URL("postgres", own()))
	mustJoin(t, d, ticket(1, "n"), driver.Held)
	mustJoin(t, d, ticket(2, "n"), driver.Waiting) // later ones begin by locking the row
	inside := make(chan error, 1)
	go func() {
		_, _, err := d.r.Lines.Join(context.Background(), stopped{d, inside}, ticket(3, "n"), "", true)
		inside <- err
	}()
	if err := <-inside; err != nil {
		t.Fatal(err)
	}
	for limit := time.Now().Add(30 * time.Second); ; {
		_, err := d.Join(context.Background(), ticket(4, "n"), true)
		if err == nil {
			break
		}
		if time.Now().After(limit) {
			t.Fatalf("the line is still locked: %v", err)
		}
	}
	if err := <-inside; driver.ClassOf(err) == driver.Refused || err == nil {
		t.Errorf("the stopped transaction: %v", err)
	}
}
