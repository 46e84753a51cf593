package main

import (
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
		"| **Holdfast** | 1.00 | 7 | 90 | 2 | 5 |\n| peer | 0.5 (0.4–0.6) | 7 | 91 | 3 | 6 |\n| limit: BLPOP | 1 | 1 | 1 | 1 | 1 |\n<!-- /bench -->\n"), "redis:a")
	want := `| one lock | locks per second | requests for each | longest wait, ms | fairness (Jain's index) |
|---|---:|---:|---:|---:|
| **Holdfast** | 90 | 2 | 5 | 1.00 |
| peer | 91 | 3 | 6 | 0.5 (0.4–0.6) |
`
	if err != nil || got != want {
		t.Errorf("%v\n%s", err, got)
	}
	for text, want := range map[string]string{
		"nothing": "no table",
		"<!-- bench:redis a -->\n| one lock | per s |\n<!-- /bench -->\n": "no column",
	} {
		if _, err := peersTable(page(text), "redis:a"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
}
