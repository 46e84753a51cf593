package main

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
)

// played is the page that tells what libraries do under faults.
const played = "docs/safety.md"

// outageColumns are the columns of its table that newcomers see, and their titles.
var outageColumns = []struct{ name, title string }{
	{"holder stopped until another holds, then woken", "a holder stopped past its lease, woken while another holds"},
	{"holder cut off until 3 s after another holds", "a holder cut off from the store hears of its loss"},
	{"a waiter cut off is cancelled: `Lock` returns", "a waiter cut off is cancelled: `Lock` returns"},
}

// outagesTable returns the table of libraries under faults, with a few of its columns.
func outagesTable(fsys fs.FS) (string, error) {
	page, err := fs.ReadFile(fsys, played)
	if err != nil {
		return "", err
	}
	_, table, found := strings.Cut(string(page), "\n| | "+outageColumns[0].name)
	if !found {
		return "", errors.New(played + " has no table of libraries under faults")
	}
	table, _, _ = strings.Cut("| | "+outageColumns[0].name+table, "\n\n")
	var b strings.Builder
	var titles []string
	for i, line := range strings.Split(table, "\n") {
		cells := strings.Split(strings.Trim(line, "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		if i == 0 {
			titles = cells
		}
		row := []string{cells[0]}
		for _, c := range outageColumns {
			column := slices.Index(titles, c.name)
			switch {
			case column < 0:
				return "", fmt.Errorf("%s has no column %q", played, c.name)
			case i == 0:
				row = append(row, c.title)
			default:
				row = append(row, cells[column])
			}
		}
		b.WriteString("| " + strings.Join(row, " | ") + " |\n")
	}
	return strings.ReplaceAll(b.String(), "| --- ", "|---"), nil
}
