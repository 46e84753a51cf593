package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// storeHeadings are the headings of every store's page, in this order, so that
// two stores can be compared line by line.
var storeHeadings = []string{"Opening", "Guarantees", "Layout on the server", "Costs", "Failure behaviour", "Operations", "Interoperation", "Versions"}

var sectionHeading = regexp.MustCompile(`(?m)^## (.+)$`)

// TestStorePages checks that the pages have these headings, and that their
// tables of versions are made from the record; a store may have more headings.
func TestStorePages(t *testing.T) {
	files, err := filepath.Glob("../../docs/stores/*.md")
	if err != nil || len(files) == 0 {
		t.Fatalf("no pages of stores: %v", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var has []string
		for _, m := range sectionHeading.FindAllStringSubmatch(string(text), -1) {
			if slices.Contains(storeHeadings, m[1]) {
				has = append(has, m[1])
			}
		}
		if !slices.Equal(has, storeHeadings) {
			t.Errorf("%s has the headings %q, want %q", file, has, storeHeadings)
		}
		if _, section, _ := strings.Cut(string(text), "\n## Versions\n"); !strings.Contains(section, "\n<!-- generated:versions ") {
			t.Errorf("%s has no table that is made of the record of servers", file)
		}
	}
}
