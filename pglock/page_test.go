package pglock

import (
	"database/sql"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/holdfast-go/holdfast/internal/testkit/servers"
	"github.com/holdfast-go/holdfast/internal/testkit/sqlcases"
)

// TestStatementsOfPage runs the SQL that the page about the store shows.
func TestStatementsOfPage(t *testing.T) {
	s := servers.SharedPostgres(t)
	db, err := sql.Open("pgx", s.URL("postgres", "sslmode=disable"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	url := s.URL("postgres", own())
	sqlcases.StatementsOfPage(t, "../docs/stores/postgresql.md", db, openOn(t, url), sqlcases.PrefixOf(url),
		func(state string, token int64, id int) []any { return []any{state, token, id} })
}
