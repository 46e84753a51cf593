package linetest

import (
	"context"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/sqlline"
)

// HandedOn has d hand a lock to a ticket of e, which told hears of, and e leave.
// Ids of two tickets begin with id.
func HandedOn(t *testing.T, d, e driver.Driver, told <-chan string, id int) {
	t.Helper()
	a, b := Ticket(id, "n"), Ticket(id+1, "n")
	Join(t, d, a, driver.Held)
	Join(t, e, b, driver.Waiting)
	Leave(t, d, a)
	if got := <-told; got != b.ID {
		t.Errorf("told %q, want %q", got, b.ID)
	}
	Leave(t, e, b)
}

// LastToken has lines come to the last token there is.
func LastToken(t *testing.T, d driver.Driver) {
	t.Helper()
	for i, want := range []uint64{math.MaxInt64 - 1, math.MaxInt64} {
		last := Ticket(10+i, "n")
		last.Floor = math.MaxInt64 - 1
		if p := Join(t, d, last, driver.Held); p.Token != want {
			t.Errorf("token %d, want %d", p.Token, want)
		}
		Leave(t, d, last)
	}
	for i, floor := range []uint64{0, math.MaxInt64, math.MaxUint64} {
		tk := Ticket(i+2, []string{"n", "n", "other"}[i])
		tk.Floor = floor
		if p, err := d.Join(context.Background(), tk, true); driver.ClassOf(err) != driver.Refused {
			t.Errorf("with a floor of %d: %+v, %v", floor, p, err)
		}
	}
}

// stopped is a database whose transactions stand still before their end.
type stopped struct {
	sqlline.DB
	inside chan error
	pause  time.Duration
}

// Tx implements [sqlline.DB].
func (s stopped) Tx(ctx context.Context, f func(sqlline.Tx) ([]*sqlline.Stmt, error)) error {
	return s.DB.Tx(ctx, func(tx sqlline.Tx) ([]*sqlline.Stmt, error) {
		last, err := f(tx)
		s.inside <- err
		time.Sleep(s.pause)
		return last, err
	})
}

// StoppedInside has a process stop in the middle of a transaction, for longer
// than the server lets one be idle: the server ends it, and the line goes on.
func StoppedInside(t *testing.T, d driver.Driver, r *sqlline.Remote, idle time.Duration) {
	t.Helper()
	Join(t, d, Ticket(1, "n"), driver.Held)
	Join(t, d, Ticket(2, "n"), driver.Waiting)
	inside := make(chan error, 1)
	go func() {
		_, err := r.Lines.Break(context.Background(), stopped{r.Site, inside, idle + time.Second}, "n", Ticket(2, "n").ID)
		inside <- err
	}()
	if err := <-inside; err != nil {
		t.Fatal(err)
	}
	for limit := time.Now().Add(30 * time.Second); ; {
		_, err := d.Join(context.Background(), Ticket(4, "n"), true)
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

// Swept has lines be idle for longer than they are kept, which late begins: no
// row of them is left then, rows counts none, and the greatest token of theirs
// is kept.
func Swept(t *testing.T, d driver.Driver, late func(), rows, kept func() int64) {
	t.Helper()
	use := func(id int, name string) {
		tk := Ticket(id, name)
		Join(t, d, tk, driver.Held)
		Leave(t, d, tk)
	}
	for i := range 40 {
		use(i, fmt.Sprintf("n-%d", i))
	}
	late()
	limit := time.Now().Add(30 * time.Second)
	for i := 0; rows() > 0; i++ {
		if time.Now().After(limit) {
			t.Fatalf("%d rows are left", rows())
		}
		use(1000+i, "busy")
	}
	if kept() != 1 {
		t.Error("the greatest token of the rows is not kept")
	}
}
