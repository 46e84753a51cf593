package sqlqueue

import (
	"fmt"
	"slices"
	"testing"
)

// TestChangesReachLastLayout checks that tables of each earlier layout are
// brought to the last one, a change at a time, and that new tables are the same
// as changed ones.
func TestChangesReachLastLayout(t *testing.T) {
	later := [][]string{
		{"ALTER TABLE {line} ADD COLUMN note <int> NOT NULL DEFAULT 7", "CREATE INDEX {line}_note ON {line} (note)"},
		{"ALTER TABLE {ticket} ADD COLUMN more <text>"},
	}
	queues := New(Dialect{Types: SQLiteTypes, Prefix: "x_", ExtraChanges: &later})
	first := queues.Layout() - 2
	if first != 1+int64(len(changes)) || New(Dialect{}).Layout() != first {
		t.Errorf("the layout before the later changes is %d", first)
	}
	add := []string{"ALTER TABLE x_line ADD COLUMN note INTEGER NOT NULL DEFAULT 7", "CREATE INDEX x_line_note ON x_line (note)"}
	more := []string{"ALTER TABLE x_ticket ADD COLUMN more TEXT"}
	step := func(from int64) string {
		return fmt.Sprintf("UPDATE x_store SET layout = %d WHERE layout = %d", from+1, from)
	}
	second := append(slices.Clone(more), step(first+1))
	both := slices.Concat(add, []string{step(first)}, second)
	for from, want := range map[int64][]string{first: both, first + 1: second, first + 2: nil} {
		if got := queues.Changes(from); !slices.Equal(got, want) {
			t.Errorf("from %d: %q, want %q", from, got, want)
		}
	}
	want := slices.Concat(New(Dialect{Types: SQLiteTypes, Prefix: "x_"}).Schema(), add, more)
	if got := queues.Schema(); !slices.Equal(got, want) {
		t.Errorf("new tables: %q, want %q", got, want)
	}
}
