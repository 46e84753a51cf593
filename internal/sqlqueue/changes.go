package sqlqueue

import (
	"fmt"
	"slices"
)

// changes[i] turns layout i+1 into layout i+2, in the notation of schema.
//
// A change adds columns with a default, indexes, and tables. It removes
// nothing, renames nothing and gives nothing another meaning, so that running
// programs of the version before continue with the tables that they have open.
// A program of that version that is started later refuses the tables. A change
// leaves the rows of queues and tickets as they are: holders keep their locks.
// Each statement of a change must fail recognisably when it runs a second time:
// where a statement commits by itself, a change may be cut off between two
// statements.
//
// A released change must never be edited.
var changes [][]string

func (d *Dialect) changes() [][]string {
	if d.ExtraChanges == nil {
		return changes
	}
	return slices.Concat(changes, *d.ExtraChanges)
}

// Layout returns the version of the tables. A program that opens tables of an
// earlier layout, from 1 on, changes them, see [Queues.Changes]. A program that
// opens tables of a later layout must refuse them.
func (s *Queues) Layout() int64 { return 1 + int64(len(s.d.changes())) }

// Changes returns the statements that bring tables of the layout from, which is
// at least 1, to this layout, in order. Each change ends with a statement that
// records the new layout. There are no statements for tables of this layout.
func (s *Queues) Changes(from int64) []string {
	var out []string
	for i, change := range s.d.changes()[from-1:] {
		at := from + int64(i)
		out = append(out, s.d.translate(change)...)
		out = append(out, s.d.translate([]string{
			fmt.Sprintf("UPDATE {store} SET layout = %d WHERE layout = %d", at+1, at),
		})...)
	}
	return out
}
