package main

import (
	"bytes"
	"os"
	"strings"
	"testing"
)

// TestAPIIsAsRecorded checks that api.txt has the API as it is.
func TestAPIIsAsRecorded(t *testing.T) {
	got, err := dump("../..")
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile("api.txt")
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Equal(got, want) {
		return
	}
	t.Error("the public API has changed: run go generate ./internal/apidump, and give the change a line in CHANGELOG.md")
	a, b := strings.Split(string(want), "\n"), strings.Split(string(got), "\n")
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			t.Errorf("line %d:\n-%s\n+%s", i+1, a[i], b[i])
			return
		}
	}
	t.Errorf("%d lines before, %d now", len(a), len(b))
}
