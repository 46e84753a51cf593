package sqlcases

import (
	"database/sql"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
)

var sqlBlock = regexp.MustCompile("(?ms)^```sql\n(.*?)^```$")

// StatementsOfPage runs the statements of a store's page: the SELECT shows a lock that is
// held by d, whose tables have the prefix; the UPDATE refuses an older token. args
// returns the arguments of the latter.
func StatementsOfPage(t *testing.T, page string, db *sql.DB, d driver.Driver, prefix string, args func(state string, token int64, id int) []any) {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	tk := Ticket(7001, "a name of the page")
	token := Join(t, d, tk, driver.Held).Token
	defer Leave(t, d, tk)
	shown, refused := false, false
	for _, m := range sqlBlock.FindAllStringSubmatch(string(text), -1) {
		switch statement := m[1]; {
		case strings.HasPrefix(statement, "SELECT "):
			var name string
			var held, waiting int
			var last uint64
			err := db.QueryRow(strings.ReplaceAll(statement, "holdfast_", prefix)).Scan(&name, &held, &waiting, &last)
			if err != nil || name != tk.Name || held != 1 || waiting != 0 || last != token {
				t.Errorf("%s: %q, %d, %d, %d, %v; the token is %d", statement, name, held, waiting, last, err, token)
			}
			shown = true
		case strings.HasPrefix(statement, "UPDATE orders "):
			table := prefix + "orders"
			statement = strings.Replace(statement, "orders", table, 1)
			for _, s := range []string{"CREATE TABLE " + table + " (id int PRIMARY KEY, state varchar(20), token bigint)", "INSERT INTO " + table + " VALUES (1, 'new', 5)"} {
				if _, err := db.Exec(s); err != nil {
					t.Fatal(err)
				}
			}
			for _, write := range []struct{ token, rows int64 }{{5, 1}, {7, 1}, {6, 0}} {
				result, err := db.Exec(statement, args("of "+string(rune('a'+write.token)), write.token, 1)...)
				if err != nil {
					t.Fatal(err)
				}
				if n, err := result.RowsAffected(); n != write.rows || err != nil {
					t.Errorf("token %d changes %d rows, %v", write.token, n, err)
				}
			}
			refused = true
		default:
			t.Errorf("no test runs the statement %s", statement)
		}
	}
	if !shown || !refused {
		t.Errorf("%s has no SELECT, or no UPDATE of orders", page)
	}
}
