package pglock

import (
	"context"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/backends"
	"github.com/holdfast-go/holdfast/internal/sqlline"
	"github.com/holdfast-go/holdfast/internal/sqlline/linetest"
)

// tablesAt are those of clients of a URL.
func tablesAt(t *testing.T, s *backends.PostgresServer, url string) linetest.Tables {
	prefix := linetest.PrefixOf(url)
	return linetest.Tables{
		Open: func() (driver.Driver, error) { return Open(context.Background(), url) },
		Next: func() (driver.Driver, error) {
			config, o, err := parseURL(url)
			if err != nil {
				return nil, err
			}
			o.later = &linetest.NextLayout
			return open(context.Background(), config, o)
		},
		Layout: sqlline.New(dialect(new(Options), "", nil)).Layout(),
		Found: func() (layout, lines, indexes int64) {
			return s.Value(t, "SELECT layout FROM "+prefix+"store"),
				s.Value(t, "SELECT count(*) FROM "+prefix+"line WHERE note = 7"),
				s.Value(t, "SELECT count(*) FROM pg_indexes WHERE indexname = '"+prefix+"line_note'")
		},
		Later: "a later version of Holdfast made the tables: their layout is",
	}
}

// Clients of the next layout change the tables while one of this layout holds
// and one waits; both go on as before.
func TestNextLayout(t *testing.T) {
	s := backends.SharedPostgres(t)
	tablesAt(t, s, s.URL("postgres", own())).Changed(t)
}

// Who may not change the tables is told what to run, and it works.
func TestNextLayoutDenied(t *testing.T) {
	s := backends.SharedPostgres(t)
	openOn(t, s.URL("postgres", "schema=next"))
	s.Exec(t, "GRANT USAGE ON SCHEMA next TO app")
	s.Exec(t, "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA next TO app")
	tablesAt(t, s, s.URL("app", "schema=next")).Denied(t, "let their owner", func(stmts string) { s.Exec(t, stmts) })
}
