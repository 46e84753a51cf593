package sqlcases

import (
	"context"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// A RowLocker locks rows by hand, in a transaction.
type RowLocker interface {
	// Lock locks the row of a queue.
	Lock(name string) error
	// End ends the transaction.
	End()
}

// NoDeadlock lets another program lock the row of one queue, and then that of
// another queue while a request about both waits for the first, in either order
// of their keys. It checks that the request keeps no row while it waits, so
// that neither side is the victim of a deadlock, and that the other lock is
// renewed meanwhile. Waits reports whether a request waits for a row.
func NoDeadlock(t *testing.T, d driver.Driver, begin func() RowLocker, waits func() bool) {
	t.Helper()
	names := []string{"a", "b"}
	var refs []driver.Ref
	for i, name := range names {
		refs = append(refs, driver.Ref{Ticket: Ticket(i, name), State: driver.Held})
		Join(t, d, refs[i].Ticket, driver.Held)
	}
	for first := range names {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		s := begin()
		if err := s.Lock(names[first]); err != nil {
			t.Fatal(err)
		}
		renewed := make(chan []driver.Status, 1)
		go func() {
			p, err := d.Renew(ctx, refs)
			if err != nil {
				t.Errorf("Renew: %v", err)
			}
			renewed <- p
		}()
		var places []driver.Status
		for places == nil && !waits() {
			select {
			case places = <-renewed: // on a busy machine the wait may be over already
			default:
			}
		}
		if err := s.Lock(names[1-first]); err != nil {
			t.Errorf("the other program gets no second row: %v", err)
		}
		s.End()
		if places == nil {
			places = <-renewed
		}
		cancel()
		if p := places[1-first]; p.State != driver.Held || p.Err != nil {
			t.Errorf("the lock of a free row: %+v", p)
		}
		if err := places[first].Err; err != nil && driver.ClassOf(err) != driver.NotDone {
			t.Errorf("the other one: class %v: %v", driver.ClassOf(err), err)
		}
		for _, ref := range refs {
			if p := Renew(t, d, ref.Ticket); p.State != driver.Held {
				t.Errorf("afterwards the ticket is %v", p.State)
			}
		}
	}
}
