package main

import (
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestFeatureTableHasTheMeasuredFairness compares the column "fair" of README's table of
// features with Jain's index in docs/performance.md, for 8 clients that hold for 1 ms: a
// library is fair from 0.99 on. Every cell of the table links to something.
func TestFeatureTableHasTheMeasuredFairness(t *testing.T) {
	read := func(name string) string {
		text, err := os.ReadFile("../../" + name)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	performance := read(measured)
	jain := func(store, library string) (indexes []string) {
		_, table, _ := strings.Cut(performance, "<!-- bench:"+store+" clients-8-1ms -->\n")
		table, _, _ = strings.Cut(table, "<!-- /bench -->")
		column := -1
		for line := range strings.Lines(table) {
			cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
			for i := range cells {
				cells[i] = strings.Trim(cells[i], " *")
			}
			if column < 0 {
				column = slices.Index(cells, "Jain")
			} else if name, _, _ := strings.Cut(cells[0], ","); name == library {
				median, _, _ := strings.Cut(cells[column], " ")
				indexes = append(indexes, median)
			}
		}
		return indexes
	}
	_, table, _ := strings.Cut(read("README.md"), "\n| | fair | ")
	table, _, _ = strings.Cut(table, "\n\n")
	rows := map[string]string{} // the cells of the column, by the first word of the row
	linked := regexp.MustCompile(`\[([^]]*)\]\([^)]*\)`)
	for i, line := range strings.Split(table, "\n") {
		if i < 2 {
			continue
		}
		cells := strings.Split(strings.Trim(line, "| "), " | ")
		for _, cell := range cells[1:] {
			if linked.FindString(cell) != cell {
				t.Errorf("the cell %q of %s links to nothing", cell, cells[0])
			}
		}
		name, _, _ := strings.Cut(strings.Trim(linked.ReplaceAllString(cells[0], "$1"), "*"), " ")
		rows[name] = linked.ReplaceAllString(cells[1], "$1")
	}
	for name, source := range map[string][2]string{
		"Holdfast": {"redis", "Holdfast"}, "redsync": {"redis", "redsync"}, "redislock": {"redis", "redislock"},
		"rueidislock": {"redis", "rueidislock"}, "etcd": {"etcd", "concurrency.Mutex"},
	} {
		indexes := jain(source[0], source[1])
		if len(indexes) == 0 {
			t.Errorf("%s: nothing was measured", name)
			continue
		}
		slices.Sort(indexes)
		want := indexes[0]
		if last := indexes[len(indexes)-1]; last != want {
			want += " to " + last
		}
		if least, err := strconv.ParseFloat(indexes[0], 64); err != nil || least < 0.99 {
			want = "no, " + want
		} else {
			want = "yes, " + want
		}
		if rows[name] != want {
			t.Errorf("%s is fair: %q, measured is %q", name, rows[name], want)
		}
	}
}
