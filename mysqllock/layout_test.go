package mysqllock

import (
	"context"
	sqldriver "database/sql/driver"
	"fmt"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/backends"
	"github.com/holdfast-go/holdfast/internal/sqlline"
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
	s := backends.SharedMariaDB(t)
	url := s.URL("holdfast", own())
	prefix := prefixOf(url)
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
	if n := s.Value(t, "SELECT count(*) FROM information_schema.statistics WHERE index_name = '"+prefix+"line_note'"); n != 1 {
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

// A client that ended in the middle of a change, before the layout was written
// down, leaves it to the next, also on a pool of the user's own.
func TestNextLayoutCutOff(t *testing.T) {
	s := backends.SharedMariaDB(t)
	url := s.URL("holdfast", own())
	prefix := prefixOf(url)
	a := ticket(1, "n")
	held := mustJoin(t, openOn(t, url), a, driver.Held)
	lines := sqlline.New(dialect(&Options{TablePrefix: prefix, later: &nextLayout}, nil))
	stmts := lines.Changes(lines.Layout() - 1)
	db := poolOf(t, url, func(c *mysql.Config) { c.Params = map[string]string{"autocommit": "0"} })
	for done := 1; done < len(stmts); done++ {
		s.Exec(t, stmts[done-1])
		d, err := New(db, &Options{TablePrefix: prefix, later: &nextLayout})
		if err != nil {
			t.Fatal(err)
		}
		if p := mustRenew(t, d, a); p.State != driver.Held || p.Token != held.Token {
			t.Errorf("after %d statements: %+v, want token %d", done, p, held.Token)
		}
		if n := s.Value(t, "SELECT layout FROM "+prefix+"store"); n != lines.Layout() {
			t.Errorf("after %d statements: the layout is %d, want %d", done, n, lines.Layout())
		}
		_ = d.Close()
		s.Exec(t, "DROP INDEX "+prefix+"line_note ON "+prefix+"line")
		s.Exec(t, fmt.Sprintf("UPDATE %sstore SET layout = %d", prefix, lines.Layout()-1))
	}
}

// While one client changes the tables, another waits for it, and says so when
// its time is over.
func TestNextLayoutOneAtATime(t *testing.T) {
	s := backends.SharedMariaDB(t)
	url := s.URL("holdfast", own())
	layout := openOn(t, url).r.Lines.Layout()
	db := poolOf(t, url, nil)
	c, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	const lock = "SELECT GET_LOCK(concat('holdfast_', sha1(concat(database(), ?))), 0)"
	got := 0
	if err := c.QueryRowContext(t.Context(), lock, "."+prefixOf(url)).Scan(&got); err != nil || got != 1 {
		t.Fatalf("the lock: %d, %v", got, err)
	}
	done := make(chan error)
	go func() {
		d, err := openNext(url)
		if err == nil {
			err = d.Close()
		}
		done <- err
	}()
	for s.Value(t, "SELECT count(*) FROM information_schema.processlist WHERE info LIKE '%GET_LOCK(concat(%"+prefixOf(url)+"%' AND id <> connection_id()") == 0 {
		select {
		case err := <-done:
			t.Fatalf("it did not wait: %v", err)
		default:
		}
	}
	if n := s.Value(t, "SELECT layout FROM "+prefixOf(url)+"store"); n != layout {
		t.Errorf("changed beside another client: layout %d", n)
	}
	_ = c.Raw(func(any) error { return sqldriver.ErrBadConn }) // the client ends, and its lock with it
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// Who may not change the tables is told what to run, and it works.
func TestNextLayoutDenied(t *testing.T) {
	s := backends.SharedMariaDB(t)
	options := own()
	d := openOn(t, s.URL("holdfast", options))
	layout := d.r.Lines.Layout()
	for _, table := range tables {
		s.Exec(t, "GRANT SELECT, INSERT, UPDATE, DELETE ON locks."+d.opt.prefix()+table+" TO app@'%'")
	}
	_, err := openNext(s.URL("app", options))
	said := fmt.Sprintf("have layout %d, this version needs layout %d, and this user may not change them; let somebody who may run: ", layout, layout+1)
	if driver.ClassOf(err) != driver.Refused || !strings.Contains(err.Error(), said) {
		t.Fatalf("without the right: %v", err)
	}
	_, run, _ := strings.Cut(err.Error(), said)
	run = run[:strings.LastIndex(run, "; ")]
	for stmt := range strings.SplitSeq(run, "; ") {
		s.Exec(t, stmt)
	}
	app, err := openNext(s.URL("app", options))
	if err != nil {
		t.Fatalf("after %q: %v", run, err)
	}
	t.Cleanup(func() { _ = app.Close() })
	mustJoin(t, app, ticket(1, "n"), driver.Held)
}
