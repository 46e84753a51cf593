package sqlline

import (
	"fmt"
	"slices"
)

// changes[i] makes layout i+2 of layout i+1, in the words of schema.
//
// A change adds: columns with a default, indexes, tables. It removes nothing,
// renames nothing and gives nothing another meaning, so programs of the version
// before go on with the tables that they have open; one that is started later
// refuses them. It leaves the rows of lines and tickets as they are: who holds
// goes on holding. Each of its statements is one that can be told, by the error
// of a second run, to have been done: where a statement commits by itself, a
// change may be cut off between two of them.
//
// A change that was released stays as it is.
var changes [][]string

func (s *Lines) changes() [][]string {
	if s.d.Later == nil {
		return changes
	}
	return slices.Concat(changes, *s.d.Later)
}

// Layout is the version of the tables. Tables of an earlier one, from 1 on, are
// changed by whoever opens them, see [Lines.Changes]; those of a later one must
// be refused.
func (s *Lines) Layout() int64 { return 1 + int64(len(s.changes())) }

// Changes returns the statements that bring tables of a layout, from 1 on, to
// this one, in order. Each change ends with the statement that writes down what
// it has made. There are none for tables of this layout.
func (s *Lines) Changes(from int64) []string {
	var out []string
	for i, change := range s.changes()[from-1:] {
		at := from + int64(i)
		out = append(out, s.translate(change)...)
		out = append(out, s.translate([]string{
			fmt.Sprintf("UPDATE {store} SET layout = %d WHERE layout = %d", at+1, at),
		})...)
	}
	return out
}
