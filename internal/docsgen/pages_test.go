package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
)

// storeHeadings are what the page of every store has, in this order, so that two
// stores can be compared line by line.
var storeHeadings = []string{"Opening", "Guarantees", "Layout on the server", "Costs", "Failure behaviour", "Operations", "Interoperation"}

var sectionHeading = regexp.MustCompile(`(?m)^## (.+)$`)

// TestStorePages: they have equal headings; a store may have more besides.
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
	}
}
