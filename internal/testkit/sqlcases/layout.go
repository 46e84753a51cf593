package sqlcases

import (
	"fmt"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
)

// NextLayout is a change of the tables such as a later version may have.
var NextLayout = [][]string{{
	"ALTER TABLE {line} ADD COLUMN note <int> NOT NULL DEFAULT 7",
	"CREATE INDEX {line}_note ON {line} (note)",
}}

// Tables are the tables of one test, which do not exist yet.
type Tables struct {
	// Open opens a client that knows today's layout, and Next one that knows
	// NextLayout.
	Open, Next func() (driver.Driver, error)
	// Layout is the number of today's layout.
	Layout int64
	// Read returns the number of the tables' layout, the number of queues with
	// a 7 in the new column, and the number of new indexes.
	Read func() (layout, queues, indexes int64)
	// LaterError is the error text of a client that meets tables of a later
	// layout, up to the layout's number.
	LaterError string
}

// MigrateWhileHeld lets clients of the next layout change the tables while a
// client of this layout holds and another waits. It checks that both go on as
// before.
func (s Tables) MigrateWhileHeld(t *testing.T) {
	opened := func(d driver.Driver, err error) driver.Driver {
		t.Helper()
		if err != nil {
			t.Fatalf("Open: %v", err)
		}
		t.Cleanup(func() { _ = d.Close() })
		return d
	}
	old := opened(s.Open())
	a, b, c, other := Ticket(1, "n"), Ticket(2, "n"), Ticket(3, "n"), Ticket(4, "other")
	pushed := make(chan driver.Status, 1)
	if err := old.Watch(t.Context(), func(id string, p driver.Status) {
		if id == b.ID {
			pushed <- p
		}
	}); err != nil {
		t.Fatal(err)
	}
	first := Join(t, old, a, driver.Held)
	Join(t, old, b, driver.Waiting)

	nexts := make([]driver.Driver, 2)
	errs := make(chan error)
	for i := range nexts {
		go func() {
			var err error
			nexts[i], err = s.Next()
			errs <- err
		}()
	}
	err := <-errs
	if err2 := <-errs; err == nil {
		err = err2
	}
	for _, d := range nexts {
		opened(d, err)
	}
	next := nexts[0]
	if layout, queues, indexes := s.Read(); layout != s.Layout+1 || queues != 1 || indexes != 1 {
		t.Errorf("the layout is %d, %d queues have the new column, %d new indexes; want %d, 1 and 1", layout, queues, indexes, s.Layout+1)
	}
	queue, err := next.Inspect(t.Context(), "n")
	if err != nil || len(queue.Tickets) != 2 || queue.Tickets[0].ID != a.ID || queue.Tickets[0].Token != first.Token || queue.Tickets[1].ID != b.ID {
		t.Fatalf("after the change: %+v, %v", queue, err)
	}

	Join(t, next, c, driver.Waiting)
	if p := Renew(t, old, a); p.State != driver.Held || p.Token != first.Token {
		t.Errorf("renewed: %+v, want token %d", p, first.Token)
	}
	Leave(t, old, a)
	granted := <-pushed
	if granted.State != driver.Held || granted.Token <= first.Token {
		t.Errorf("handed on: %+v after token %d", granted, first.Token)
	}
	Leave(t, old, b)
	if p := Join(t, next, c, driver.Held); p.Token <= granted.Token {
		t.Errorf("token %d after %d", p.Token, granted.Token)
	}
	Leave(t, next, c)
	Join(t, old, other, driver.Held) // a row that it makes has the column's default
	Leave(t, old, other)

	want := fmt.Sprintf("%s %d, this version knows %d", s.LaterError, s.Layout+1, s.Layout)
	if _, err = s.Open(); driver.ClassOf(err) != driver.Refused || !strings.Contains(err.Error(), want) {
		t.Errorf("a client of layout %d opened later: %v", s.Layout, err)
	}
}

// MigrationDenied lets a user who may only read and write the tables open them
// with the next layout. It checks that the error names the statements to run,
// and that the user can lock after run has run them. Says is the text of the
// error up to "run: ".
func (s Tables) MigrationDenied(t *testing.T, says string, run func(stmts string)) {
	_, err := s.Next()
	said := fmt.Sprintf("have layout %d, this version needs layout %d, and this user may not change them; %s run: ", s.Layout, s.Layout+1, says)
	if driver.ClassOf(err) != driver.Refused || !strings.Contains(err.Error(), said) {
		t.Fatalf("without the right: %v", err)
	}
	_, stmts, _ := strings.Cut(err.Error(), said)
	stmts = stmts[:strings.LastIndex(stmts, "; ")]
	run(stmts)
	d, err := s.Next()
	if err != nil {
		t.Fatalf("after %q: %v", stmts, err)
	}
	t.Cleanup(func() { _ = d.Close() })
	Join(t, d, Ticket(1, "n"), driver.Held)
}

// CreatedAtOnce checks that eight clients can create the tables at once.
func (s Tables) CreatedAtOnce(t *testing.T) {
	errs := make(chan error)
	for range 8 {
		go func() {
			d, err := s.Open()
			if err == nil {
				err = d.Close()
			}
			errs <- err
		}()
	}
	for range 8 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
}
