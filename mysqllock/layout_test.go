package mysqllock

import (
	"context"
	sqldriver "database/sql/driver"
	"fmt"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/sqlqueue"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
	"github.com/holdfast-go/holdfast/internal/testkit/sqlcases"
)

// tablesAt returns the tables of a URL's clients.
func tablesAt(t *testing.T, s *servers.MariaDBServer, url string) sqlcases.Tables {
	prefix := sqlcases.PrefixOf(url)
	return sqlcases.Tables{
		Open:   func() (driver.Driver, error) { return Open(context.Background(), url) },
		Next:   func() (driver.Driver, error) { return openNext(url) },
		Layout: sqlqueue.New(dialect(new(Options), "", nil)).Layout(),
		Read: func() (layout, queues, indexes int64) {
			return s.Value(t, "SELECT layout FROM "+prefix+"store"),
				s.Value(t, "SELECT count(*) FROM "+prefix+"line WHERE note = 7"),
				s.Value(t, "SELECT count(*) FROM information_schema.statistics WHERE index_name = '"+prefix+"line_note'")
		},
		LaterError: "a later version of Holdfast made the tables: their layout is",
	}
}

// openNext opens a client of the layout after this one.
func openNext(url string) (*Driver, error) {
	config, o, err := parseURL(url)
	if err != nil {
		return nil, err
	}
	o.later = &sqlcases.NextLayout
	return open(context.Background(), config, o)
}

// TestNextLayoutKeepsHolds lets clients of the next layout change the tables
// while a client of this layout holds and another waits. It checks that both go
// on as before.
func TestNextLayoutKeepsHolds(t *testing.T) {
	s := servers.SharedMariaDB(t)
	tablesAt(t, s, s.URL("holdfast", own())).MigrateWhileHeld(t)
}

// TestNextLayoutCutOff checks that the next client completes a change after a
// client ended in the middle of it, before the layout was recorded, also on a
// user's pool.
func TestNextLayoutCutOff(t *testing.T) {
	s := servers.SharedMariaDB(t)
	url := s.URL("holdfast", own())
	prefix := prefixOf(url)
	a := ticket(1, "n")
	held := mustJoin(t, openOn(t, url), a, driver.Held)
	queues := sqlqueue.New(dialect(&Options{TablePrefix: prefix, later: &sqlcases.NextLayout}, "", nil))
	stmts := queues.Changes(queues.Layout() - 1)
	db := poolOf(t, url, func(c *mysql.Config) { c.Params = map[string]string{"autocommit": "0"} })
	for done := 1; done < len(stmts); done++ {
		s.Exec(t, stmts[done-1])
		d, err := New(db, &Options{TablePrefix: prefix, later: &sqlcases.NextLayout})
		if err != nil {
			t.Fatal(err)
		}
		if p := mustRenew(t, d, a); p.State != driver.Held || p.Token != held.Token {
			t.Errorf("after %d statements: %+v, want token %d", done, p, held.Token)
		}
		if n := s.Value(t, "SELECT layout FROM "+prefix+"store"); n != queues.Layout() {
			t.Errorf("after %d statements: the layout is %d, want %d", done, n, queues.Layout())
		}
		_ = d.Close()
		s.Exec(t, "DROP INDEX "+prefix+"line_note ON "+prefix+"line")
		s.Exec(t, fmt.Sprintf("UPDATE %sstore SET layout = %d", prefix, queues.Layout()-1))
	}
}

// TestNextLayoutOneAtATime checks that a client waits while another one changes
// the tables, and reports that when its time is over, whatever the versions of
// the two.
//
// Covers: F126.
func TestNextLayoutOneAtATime(t *testing.T) {
	s := servers.SharedMariaDB(t)
	url := s.URL("holdfast", own())
	layout := openOn(t, url).db.tables.Queues.Layout()
	db := poolOf(t, url, nil)
	c, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	// An earlier version let the server hash the name, which MySQL 9.6 cannot
	// do.
	lock, args := "SELECT GET_LOCK(concat('holdfast_', sha1(concat(database(), ?))), 0)", []any{"." + prefixOf(url)}
	if s.MySQL {
		lock, args = "SELECT GET_LOCK(?, 0)", []any{migrationLock("locks", prefixOf(url))}
	}
	got := 0
	if err := c.QueryRowContext(t.Context(), lock, args...).Scan(&got); err != nil || got != 1 {
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
	for s.Value(t, "SELECT count(*) FROM information_schema.processlist WHERE info LIKE '%GET_LOCK(%"+migrationLock("locks", prefixOf(url))+"%' AND state = 'User lock' AND id <> connection_id()") == 0 {
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

// TestMigrationLockIsThatOfEarlierVersions checks the name of the lock under which
// tables are changed. Earlier versions let the server hash it, by SHA1(concat(database(),
// '.', prefix)), and their clients must wait for this version's.
func TestMigrationLockIsThatOfEarlierVersions(t *testing.T) {
	if got := migrationLock("locks", "app_"); got != "holdfast_3f7703c724cae062f033835e7419cd5180a949bb" {
		t.Errorf("the lock's name is %s", got)
	}
}

// TestNextLayoutDenied checks that a user who may not change the tables gets an
// error with the statements to run, and that these work.
func TestNextLayoutDenied(t *testing.T) {
	s := servers.SharedMariaDB(t)
	options := own()
	d := openOn(t, s.URL("holdfast", options))
	for _, table := range tables {
		s.Exec(t, "GRANT SELECT, INSERT, UPDATE, DELETE ON locks."+d.db.opt.prefix()+table+" TO app@'%'")
	}
	tablesAt(t, s, s.URL("app", options)).MigrationDenied(t, "ask an administrator to", func(stmts string) {
		for stmt := range strings.SplitSeq(stmts, "; ") {
			s.Exec(t, stmt)
		}
	})
}
