package sqlitelock

import (
	"fmt"
	"strings"

	"github.com/holdfast-go/holdfast/internal/sqlqueue"
)

// Schema returns the statements that create the tables in an empty file, as
// text for the command sqlite3. [Open] runs them itself. Use Schema to read
// them, or to create the file for other users beforehand.
func Schema() string {
	var b strings.Builder
	b.WriteString("PRAGMA journal_mode = WAL;\nBEGIN;\n")
	queues := sqlqueue.New(sqlqueue.Dialect{Types: sqlqueue.SQLiteTypes})
	for _, stmt := range append(queues.Schema(), queues.MarkSchema()) {
		b.WriteString(stmt + ";\n")
	}
	// The machine's start is empty: the first driver that opens the file enters
	// it.
	fmt.Fprintf(&b, "INSERT INTO holdfast_store (one, layout, boot, purged) VALUES (1, %d, '', 0);\n", queues.Layout())
	fmt.Fprintf(&b, "PRAGMA application_id = %d;\nPRAGMA user_version = %d;\nCOMMIT;\n", appID, queues.Layout())
	return b.String()
}
