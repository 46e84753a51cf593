package pglock

import (
	"context"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/sqlqueue"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
	"github.com/holdfast-go/holdfast/internal/testkit/sqlcases"
)

// tablesAt returns the tables of a URL's clients.
func tablesAt(t *testing.T, s *servers.PostgresServer, url string) sqlcases.Tables {
	prefix := sqlcases.PrefixOf(url)
	return sqlcases.Tables{
		Open: func() (driver.Driver, error) { return Open(context.Background(), url) },
		Next: func() (driver.Driver, error) {
			config, o, err := parseURL(url)
			if err != nil {
				return nil, err
			}
			o.later = &sqlcases.NextLayout
			return open(context.Background(), config, o)
		},
		Layout: sqlqueue.New(dialect(new(Options), "", nil)).Layout(),
		Read: func() (layout, queues, indexes int64) {
			return s.Value(t, "SELECT layout FROM "+prefix+"store"),
				s.Value(t, "SELECT count(*) FROM "+prefix+"line WHERE note = 7"),
				s.Value(t, "SELECT count(*) FROM pg_indexes WHERE indexname = '"+prefix+"line_note'")
		},
		LaterError: "a later version of Holdfast made the tables: their layout is",
	}
}

// TestNextLayoutKeepsHolds lets clients of the next layout change the tables
// while a client of this layout holds and another waits. It checks that both go
// on as before.
func TestNextLayoutKeepsHolds(t *testing.T) {
	s := servers.SharedPostgres(t)
	tablesAt(t, s, s.URL("postgres", own())).MigrateWhileHeld(t)
}

// TestNextLayoutDenied checks that a user who may not change the tables gets an
// error with the statements to run, and that these work.
func TestNextLayoutDenied(t *testing.T) {
	s := servers.SharedPostgres(t)
	openOn(t, s.URL("postgres", "schema=next"))
	s.Exec(t, "GRANT USAGE ON SCHEMA next TO app")
	s.Exec(t, "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA next TO app")
	tablesAt(t, s, s.URL("app", "schema=next")).MigrationDenied(t, "ask their owner to", func(stmts string) { s.Exec(t, stmts) })
}
