package sqlitelock

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/sqlqueue"
	"github.com/holdfast-go/holdfast/internal/testkit/sqlcases"
)

// TestNextLayoutKeepsHolds lets clients of the next layout change the tables
// while one client of this layout holds and one waits. Both go on as before.
func TestNextLayoutKeepsHolds(t *testing.T) {
	path := filepath.Join(t.TempDir(), "locks.db")
	open := func(o *Options) func() (driver.Driver, error) {
		return func() (driver.Driver, error) { return Open(context.Background(), path, o) }
	}
	sqlcases.Tables{
		Open:   open(nil),
		Next:   open(&Options{later: &sqlcases.NextLayout}),
		Layout: sqlqueue.New(sqlqueue.Dialect{Types: sqlqueue.SQLiteTypes}).Layout(),
		Read: func() (layout, queues, indexes int64) {
			var version int64
			err := raw(t, path).QueryRow(`SELECT (SELECT layout FROM holdfast_store), (SELECT user_version FROM pragma_user_version),
				(SELECT count(*) FROM holdfast_line WHERE note = 7), (SELECT count(*) FROM pragma_index_list('holdfast_line') WHERE name = 'holdfast_line_note')`).
				Scan(&layout, &version, &queues, &indexes)
			if err != nil || version != layout {
				t.Errorf("layout %d, user_version %d, %v", layout, version, err)
			}
			return layout, queues, indexes
		},
		LaterError: "a later version of Holdfast wrote the file: its layout is",
	}.MigrateWhileHeld(t)
}
