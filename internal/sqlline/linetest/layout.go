package linetest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
)

// NextLayout is a change of the tables as a later version may have one.
var NextLayout = [][]string{{
	"ALTER TABLE {line} ADD COLUMN note <int> NOT NULL DEFAULT 7",
	"CREATE INDEX {line}_note ON {line} (note)",
}}

// Tables are those of one test, which there are not yet.
type Tables struct {
	// Open opens a client that knows the layout of today, and Next one that
	// knows NextLayout.
	Open, Next func() (driver.Driver, error)
	// Layout is the number of the layout of today.
	Layout int64
	// Found returns the number of the layout that the tables have, how many
	// lines have a 7 in the new column, and how many new indexes there are.
	Found func() (layout, lines, indexes int64)
	// Later is what a client says of tables whose layout it does not know yet,
	// up to their number.
	Later string
}

// Changed has clients of the next layout change the tables while one of this
// layout holds and one waits; both go on as before.
func (s Tables) Changed(t *testing.T) {
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
	told := make(chan driver.Place, 1)
	if err := old.Watch(t.Context(), func(id string, p driver.Place) {
		if id == b.ID {
			told <- p
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
	if layout, lines, indexes := s.Found(); layout != s.Layout+1 || lines != 1 || indexes != 1 {
		t.Errorf("the layout is %d, %d lines have the new column, %d new indexes; want %d, 1 and 1", layout, lines, indexes, s.Layout+1)
	}
	line, err := next.Inspect(t.Context(), "n")
	if err != nil || len(line.Tickets) != 2 || line.Tickets[0].ID != a.ID || line.Tickets[0].Token != first.Token || line.Tickets[1].ID != b.ID {
		t.Fatalf("after the change: %+v, %v", line, err)
	}

	Join(t, next, c, driver.Waiting)
	if p := Renew(t, old, a); p.State != driver.Held || p.Token != first.Token {
		t.Errorf("renewed: %+v, want token %d", p, first.Token)
	}
	Leave(t, old, a)
	granted := <-told
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

	want := fmt.Sprintf("%s %d, this version knows %d", s.Later, s.Layout+1, s.Layout)
	if _, err = s.Open(); driver.ClassOf(err) != driver.Refused || !strings.Contains(err.Error(), want) {
		t.Errorf("a client of layout %d opened later: %v", s.Layout, err)
	}
}

// Denied has a user who may only read and write the tables need the next
// layout: it is told what to run, which run does for another, and then it locks.
// Says is how it is told, up to "run: ".
func (s Tables) Denied(t *testing.T, says string, run func(stmts string)) {
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

// MadeAtOnce has eight clients make the tables at once.
func (s Tables) MadeAtOnce(t *testing.T) {
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
