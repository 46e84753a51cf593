package mysqllock

import (
	"testing"

	"github.com/holdfast-go/holdfast/internal/testkit/servers"
	"github.com/holdfast-go/holdfast/internal/testkit/sqlcases"
)

// TestStatementsOfPage runs the SQL that the page about the store shows.
func TestStatementsOfPage(t *testing.T) {
	url := servers.SharedMariaDB(t).URL("holdfast", own())
	sqlcases.StatementsOfPage(t, "../docs/stores/mysql.md", poolOf(t, url, nil), openOn(t, url), sqlcases.PrefixOf(url),
		func(state string, token int64, id int) []any { return []any{state, token, id, token} })
}
