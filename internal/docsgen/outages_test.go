package main

import (
	"strings"
	"testing"
	"testing/fstest"
)

// TestOutagesTableTakesColumns takes three columns of the table, and refuses a page
// without one of them.
func TestOutagesTableTakesColumns(t *testing.T) {
	const page = "text\n\n| | holder stopped until another holds, then woken | x | holder cut off until 3 s after another holds | a waiter cut off is cancelled: `Lock` returns |\n" +
		"|---|---|---|---|---|\n| **Holdfast**, Redis | 1 | 2 | 3 | 4 |\n\n| no | row |\n"
	got, err := outagesTable(fstest.MapFS{played: {Data: []byte(page)}})
	rows := strings.Split(got, "\n")
	if err != nil || len(rows) != 4 || rows[1] != "|---|---|---|---|" || rows[2] != "| **Holdfast**, Redis | 1 | 3 | 4 |" || rows[3] != "" {
		t.Errorf("%v\n%s", err, got)
	}
	for text, want := range map[string]string{
		"nothing": "no table",
		strings.Replace(page, "holder cut off", "holder cut", 1): "no column \"holder cut off",
	} {
		if _, err := outagesTable(fstest.MapFS{played: {Data: []byte(text)}}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
