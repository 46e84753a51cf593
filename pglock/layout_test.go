package pglock

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/backends"
)

// nextLayout is a change of the tables as a later version may have one.
var nextLayout = [][]string{{
	"ALTER TABLE {line} ADD COLUMN note <int> NOT NULL DEFAULT 7",
	"CREATE INDEX {line}_note ON {line} (note)",
}}

// openNext opens a client of the layout after this one.
func openNext(url string) (*Driver, error) {
	config, o, err := parseURL(url)
	if err != nil {
		return nil, err
	}
	o.later = &nextLayout
	return open(context.Background(), config, o)
}

// Clients of the next layout change the tables while one of this layout holds
// and one waits; both go on as before.
func TestNextLayout(t *testing.T) {
	s := backends.SharedPostgres(t)
	option := own()
	url := s.URL("postgres", option)
	_, prefix, _ := strings.Cut(option, "=")
	old := openOn(t, url)
	told := make(chan driver.Place, 1)
	a, b, c := ticket(1, "n"), ticket(2, "n"), ticket(3, "n")
	if err := old.Watch(t.Context(), func(id string, p driver.Place) {
		if id == b.ID {
			told <- p
		}
	}); err != nil {
		t.Fatal(err)
	}
	held := mustJoin(t, old, a, driver.Held)
	mustJoin(t, old, b, driver.Waiting)
	layout := old.r.Lines.Layout()

	type opened struct {
		d   *Driver
		err error
	}
	both := make(chan opened)
	for range 2 {
		go func() { d, err := openNext(url); both <- opened{d, err} }()
	}
	var next *Driver
	for range 2 {
		o := <-both
		if o.err != nil {
			t.Errorf("open with the next layout: %v", o.err)
			continue
		}
		next = o.d
		t.Cleanup(func() { _ = o.d.Close() })
	}
	if next == nil {
		t.FailNow()
	}
	if n := s.Value(t, "SELECT layout FROM "+prefix+"store"); n != layout+1 {
		t.Errorf("the layout is %d, want %d", n, layout+1)
	}
	if n := s.Value(t, "SELECT count(*) FROM "+prefix+"line WHERE note = 7"); n != 1 {
		t.Errorf("%d lines with the new column, want 1", n)
	}
	if n := s.Value(t, "SELECT count(*) FROM pg_indexes WHERE indexname = '"+prefix+"line_note'"); n != 1 {
		t.Errorf("%d new indexes, want 1", n)
	}
	line, err := next.Inspect(t.Context(), "n")
	if err != nil || len(line.Tickets) != 2 || line.Tickets[0].ID != a.ID || line.Tickets[0].Token != held.Token || line.Tickets[1].ID != b.ID {
		t.Fatalf("after the change: %+v, %v", line, err)
	}

	mustJoin(t, next, c, driver.Waiting)
	if p := mustRenew(t, old, a); p.State != driver.Held || p.Token != held.Token {
		t.Errorf("renewed: %+v, want token %d", p, held.Token)
	}
	mustLeave(t, old, a)
	granted := <-told
	if granted.State != driver.Held || granted.Token <= held.Token {
		t.Errorf("handed on: %+v after token %d", granted, held.Token)
	}
	mustLeave(t, old, b)
	if p := mustJoin(t, next, c, driver.Held); p.Token <= granted.Token {
		t.Errorf("token %d after %d", p.Token, granted.Token)
	}
	mustLeave(t, next, c)
	other := ticket(4, "other")
	mustJoin(t, old, other, driver.Held) // a row that it makes has the column's default
	mustLeave(t, old, other)

	_, err = Open(t.Context(), url)
	want := fmt.Sprintf("a later version of Holdfast made the tables: their layout is %d, this version knows %d", layout+1, layout)
	if driver.ClassOf(err) != driver.Refused || !strings.Contains(err.Error(), want) {
		t.Errorf("a client of layout %d opened later: %v", layout, err)
	}
}

// Who may not change the tables is told what to run, and it works.
func TestNextLayoutDenied(t *testing.T) {
	s := backends.SharedPostgres(t)
	d := openOn(t, s.URL("postgres", "schema=next"))
	layout := d.r.Lines.Layout()
	s.Exec(t, "GRANT USAGE ON SCHEMA next TO app")
	s.Exec(t, "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA next TO app")
	_, err := openNext(s.URL("app", "schema=next"))
	said := fmt.Sprintf("have layout %d, this version needs layout %d, and this user may not change them; let their owner run: ", layout, layout+1)
	if driver.ClassOf(err) != driver.Refused || !strings.Contains(err.Error(), said) {
		t.Fatalf("without the right: %v", err)
	}
	_, run, _ := strings.Cut(err.Error(), said)
	run = run[:strings.LastIndex(run, "; ")]
	s.Exec(t, run)
	app, err := openNext(s.URL("app", "schema=next"))
	if err != nil {
		t.Fatalf("after %q: %v", run, err)
	}
	t.Cleanup(func() { _ = app.Close() })
	mustJoin(t, app, ticket(1, "n"), driver.Held)
}
