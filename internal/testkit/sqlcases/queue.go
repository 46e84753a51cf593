package sqlcases

import (
	"context"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/sqlqueue"
)

// HandsOff checks that a leave of d grants a ticket of e, of which pushed
// reports the push, and lets e leave. The ids of the two tickets begin with id.
// A push of an earlier ticket may be repeated. After a gap, e renews as the
// core does.
func HandsOff(t *testing.T, d, e driver.Driver, pushed <-chan string, id int) {
	t.Helper()
	a, b := Ticket(id, "n"), Ticket(id+1, "n")
	Join(t, d, a, driver.Held)
	Join(t, e, b, driver.Waiting)
	Leave(t, d, a)
	for got := "-"; got != b.ID; {
		select {
		case got = <-pushed:
		case <-time.After(time.Minute):
			t.Fatalf("no push of %q within a minute of the release", b.ID)
		}
		if got == "" && Renew(t, e, b).State == driver.Held {
			break
		}
	}
	Leave(t, e, b)
}

// LastToken checks queues that reach the last token.
func LastToken(t *testing.T, d driver.Driver) {
	t.Helper()
	for i, want := range []uint64{math.MaxInt64 - 1, math.MaxInt64} {
		last := Ticket(10+i, "n")
		last.MinToken = math.MaxInt64 - 1
		if p := Join(t, d, last, driver.Held); p.Token != want {
			t.Errorf("token %d, want %d", p.Token, want)
		}
		Leave(t, d, last)
	}
	for i, floor := range []uint64{0, math.MaxInt64, math.MaxUint64} {
		tk := Ticket(i+2, []string{"n", "n", "other"}[i])
		tk.MinToken = floor
		if p, err := d.Join(context.Background(), tk, true); driver.ClassOf(err) != driver.Refused {
			t.Errorf("with a floor of %d: %+v, %v", floor, p, err)
		}
	}
}

// stoppedDB is a database whose transactions stop before their end.
type stoppedDB struct {
	sqlqueue.DB
	inside chan error
	pause  time.Duration
}

// Tx implements [sqlqueue.DB].
func (s stoppedDB) Tx(ctx context.Context, f func(sqlqueue.Tx) ([]*sqlqueue.Stmt, error)) error {
	return s.DB.Tx(ctx, func(tx sqlqueue.Tx) ([]*sqlqueue.Stmt, error) {
		last, err := f(tx)
		s.inside <- err
		time.Sleep(s.pause)
		return last, err
	})
}

// StoppedInTransaction stops a process in the middle of a transaction, for
// longer than the server lets one be idle. It checks that the server ends the
// transaction and that the queue goes on.
func StoppedInTransaction(t *testing.T, d driver.Driver, tables *sqlqueue.Tables, idle time.Duration) {
	t.Helper()
	Join(t, d, Ticket(1, "n"), driver.Held)
	Join(t, d, Ticket(2, "n"), driver.Waiting)
	inside := make(chan error, 1)
	go func() {
		_, err := tables.Queues.Break(context.Background(), stoppedDB{tables.Database, inside, idle + 6*time.Second}, "n", Ticket(2, "n").ID)
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
			t.Fatalf("the queue is still locked: %v", err)
		}
	}
	if err := <-inside; driver.ClassOf(err) == driver.Refused || err == nil {
		t.Errorf("the stopped transaction: %v", err)
	}
}

// SweepsIdleQueues leaves queues idle for longer than they are kept; late moves
// the clock that far. It checks that no row of them is left, which rows counts,
// and that their greatest token is kept.
func SweepsIdleQueues(t *testing.T, d driver.Driver, late func(), rows, kept func() int64) {
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
