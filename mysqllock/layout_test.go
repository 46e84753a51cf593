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
	"github.com/holdfast-go/holdfast/internal/sqlline/linetest"
)

// tablesAt are those of clients of a URL.
func tablesAt(t *testing.T, s *backends.MariaDBServer, url string) linetest.Tables {
	prefix := linetest.PrefixOf(url)
	return linetest.Tables{
		Open:   func() (driver.Driver, error) { return Open(context.Background(), url) },
		Next:   func() (driver.Driver, error) { return openNext(url) },
		Layout: sqlline.New(dialect(new(Options), nil)).Layout(),
		Found: func() (layout, lines, indexes int64) {
			return s.Value(t, "SELECT layout FROM "+prefix+"store"),
				s.Value(t, "SELECT count(*) FROM "+prefix+"line WHERE note = 7"),
				s.Value(t, "SELECT count(*) FROM information_schema.statistics WHERE index_name = '"+prefix+"line_note'")
		},
		Later: "a later version of Holdfast made the tables: their layout is",
	}
}

// openNext opens a client of the layout after this one.
func openNext(url string) (*Driver, error) {
	config, o, err := parseURL(url)
	if err != nil {
		return nil, err
	}
	o.later = &linetest.NextLayout
	return open(context.Background(), config, o)
}

// Clients of the next layout change the tables while one of this layout holds
// and one waits; both go on as before.
func TestNextLayout(t *testing.T) {
	s := backends.SharedMariaDB(t)
	tablesAt(t, s, s.URL("holdfast", own())).Changed(t)
}

// A client that ended in the middle of a change, before the layout was written
// down, leaves it to the next, also on a pool of the user's own.
func TestNextLayoutCutOff(t *testing.T) {
	s := backends.SharedMariaDB(t)
	url := s.URL("holdfast", own())
	prefix := prefixOf(url)
	a := ticket(1, "n")
	held := mustJoin(t, openOn(t, url), a, driver.Held)
	lines := sqlline.New(dialect(&Options{TablePrefix: prefix, later: &linetest.NextLayout}, nil))
	stmts := lines.Changes(lines.Layout() - 1)
	db := poolOf(t, url, func(c *mysql.Config) { c.Params = map[string]string{"autocommit": "0"} })
	for done := 1; done < len(stmts); done++ {
		s.Exec(t, stmts[done-1])
		d, err := New(db, &Options{TablePrefix: prefix, later: &linetest.NextLayout})
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
	for _, table := range tables {
		s.Exec(t, "GRANT SELECT, INSERT, UPDATE, DELETE ON locks."+d.opt.prefix()+table+" TO app@'%'")
	}
	tablesAt(t, s, s.URL("app", options)).Denied(t, "let somebody who may", func(stmts string) {
		for stmt := range strings.SplitSeq(stmts, "; ") {
			s.Exec(t, stmt)
		}
	})
}
