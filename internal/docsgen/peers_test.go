package main

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// TestPeersTableTakesRows takes rows and columns of a table, and refuses what is not
// there.
func TestPeersTableTakesRows(t *testing.T) {
	page := func(text string) fstest.MapFS {
		return fstest.MapFS{measured: {Data: []byte(text)}}
	}
	const head = "| one lock | Jain | x | per s | requests | longest wait, ms |\n|---|---:|---:|---:|---:|---:|\n"
	got, err := peersTable(page("<!-- bench:redis a -->\n"+head+
		"| **Holdfast** | 1.00 | 7 | 90 | 2 | 5 |\n| redsync, 5 ms | 0.5 (0.4–0.6) | 7 | 91 | 3 | 6 |\n| limit: BLPOP | 1 | 1 | 1 | 1 | 1 |\n<!-- /bench -->\n"), "redis:a")
	want := `| one lock | locks per second | requests for each | longest wait, ms | fairness (Jain's index) |
|---|---:|---:|---:|---:|
| **Holdfast** | 90 | 2 | 5 | 1.00 |
| [redsync](https://github.com/go-redsync/redsync), 5 ms | 91 | 3 | 6 | 0.5 (0.4–0.6) |
`
	if err != nil || got != want {
		t.Errorf("%v\n%s", err, got)
	}
	for text, want := range map[string]string{
		"nothing": "no table",
		"<!-- bench:redis a -->\n| one lock | per s |\n<!-- /bench -->\n":                               "no column",
		"<!-- bench:redis a -->\n" + head + "| stranger, 5 ms | 1 | 1 | 1 | 1 | 1 |\n<!-- /bench -->\n": "no page of \"stranger\"",
	} {
		if _, err := peersTable(page(text), "redis:a"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// TestFiguresAreMeasured checks that docs/performance.md has a row of the same library
// with all numbers of each row in the README's table of other libraries.
func TestFiguresAreMeasured(t *testing.T) {
	read := func(path string) string {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	_, part, found := strings.Cut(read("../../README.md"), "\n## Beside others\n")
	part, _, ends := strings.Cut(part, "\n## ")
	_, part, measures := strings.Cut(part, "<!-- generated:peers ") // the table before it has a test of its own
	if !found || !ends || !measures {
		t.Fatal("the README has no part about other libraries")
	}
	measuredRows := strings.Split(read("../../"+measured), "\n")
	figure, link := regexp.MustCompile(`[0-9]+(\.[0-9]+)?`), regexp.MustCompile(`\[([a-z]+)\]\([^)]*\)`)
	checked := 0
	for row := range strings.Lines(part) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(row), "|"), "|")
		if !strings.HasPrefix(row, "|") || strings.HasPrefix(row, "|---") || strings.HasPrefix(row, "| one lock") {
			continue
		}
		name := "| " + link.ReplaceAllString(strings.TrimSpace(cells[0]), "$1") + " |"
		numbers := figure.FindAllString(strings.Join(cells[1:], " "), -1)
		checked += len(numbers)
		if !slices.ContainsFunc(measuredRows, func(m string) bool {
			has := figure.FindAllString(strings.TrimPrefix(m, name), -1)
			return strings.HasPrefix(m, name) && !slices.ContainsFunc(numbers, func(n string) bool { return !slices.Contains(has, n) })
		}) {
			t.Errorf("%s: no measured row has %q", name, numbers)
		}
	}
	if checked < 28 {
		t.Errorf("only %d numbers were checked", checked)
	}
}
