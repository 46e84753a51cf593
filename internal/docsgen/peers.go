package main

import (
	"fmt"
	"io/fs"
	"slices"
	"strings"
)

// measured is the page whose tables the bench writes.
const measured = "docs/performance.md"

// peerColumns are the columns of a bench table that newcomers see, and their titles.
var peerColumns = []struct{ name, title string }{
	{"per s", "locks per second"},
	{"requests", "requests for each"},
	{"longest wait, ms", "longest wait, ms"},
	{"Jain", "fairness (Jain's index)"},
}

// peerAddresses are the pages of the libraries in tables, by the first word of a row.
var peerAddresses = map[string]string{
	"redislock":   "https://github.com/bsm/redislock",
	"redsync":     "https://github.com/go-redsync/redsync",
	"rueidislock": "https://github.com/redis/rueidis/tree/main/rueidislock",
}

// linkedPeer returns the first cell of a row with a link to the library.
func linkedPeer(cell string) (string, error) {
	if cell == "**Holdfast**" {
		return cell, nil
	}
	name, setting, _ := strings.Cut(cell, ",")
	address, ok := peerAddresses[name]
	if !ok {
		return "", fmt.Errorf("no page of %q is known", name)
	}
	linked := "[" + name + "](" + address + ")"
	if setting != "" {
		linked += "," + setting
	}
	return linked, nil
}

// peersTable returns the rows of a table of docs/performance.md, named as there
// ("redis:clients-8-1ms"), with a few of its columns and without the limits.
func peersTable(fsys fs.FS, name string) (string, error) {
	page, err := fs.ReadFile(fsys, measured)
	if err != nil {
		return "", err
	}
	_, rest, found := strings.Cut(string(page), "<!-- bench:"+strings.Replace(name, ":", " ", 1)+" -->\n")
	table, _, closed := strings.Cut(rest, "<!-- /bench -->")
	if !found || !closed {
		return "", fmt.Errorf("%s has no table %q", measured, name)
	}
	var b strings.Builder
	var chosen []int
	for line := range strings.Lines(table) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		if chosen == nil {
			titles := []string{cells[0]}
			for _, c := range peerColumns {
				i := slices.Index(cells, c.name)
				if i < 0 {
					return "", fmt.Errorf("table %q has no column %q", name, c.name)
				}
				chosen, titles = append(chosen, i), append(titles, c.title)
			}
			b.WriteString("| " + strings.Join(titles, " | ") + " |\n|---" + strings.Repeat("|---:", len(chosen)) + "|\n")
			continue
		}
		if strings.HasPrefix(cells[0], "---") || strings.HasPrefix(cells[0], "limit:") {
			continue
		}
		peer, err := linkedPeer(cells[0])
		if err != nil {
			return "", fmt.Errorf("table %q: %w", name, err)
		}
		row := []string{peer}
		for _, i := range chosen {
			row = append(row, cells[i])
		}
		b.WriteString("| " + strings.Join(row, " | ") + " |\n")
	}
	return b.String(), nil
}
