package sqlitelock

import (
	"fmt"
	"strings"

	"github.com/holdfast-go/holdfast/internal/sqlline"
)

// Schema returns the statements that make the tables in an empty file, as text
// for the command sqlite3. [Open] makes them by itself; they are for who wants
// to look at them, or to make the file for other users beforehand.
func Schema() string {
	var b strings.Builder
	b.WriteString("PRAGMA journal_mode = WAL;\nBEGIN;\n")
	lines := sqlline.New(sqlline.Dialect{Types: sqlline.SQLite})
	for _, stmt := range lines.Schema() {
		b.WriteString(stmt + ";\n")
	}
	// Without the machine's start, the first to open the file enters it.
	fmt.Fprintf(&b, "INSERT INTO holdfast_store (one, layout, boot, purged) VALUES (1, %d, '', 0);\n", lines.Layout())
	fmt.Fprintf(&b, "PRAGMA application_id = %d;\nPRAGMA user_version = %d;\nCOMMIT;\n", appID, lines.Layout())
	return b.String()
}
