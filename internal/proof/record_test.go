package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestSumTellsWhatHasChanged changes one file after the other, and asks whether a release has
// checked them as they are.
func TestSumTellsWhatHasChanged(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		name = filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	files := map[string]bool{ // and whether they count
		"proof/Door.tla": true, "proof/Gate.tla": true, "proof/cfg/Door.one.cfg": true, "proof/mutants.json": true, "internal/proof/plan.go": true,
		"scripts/proof-tools": true, "internal/proof/plan_test.go": false, "proof/notes.txt": false,
	}
	for name := range files {
		write(name, "1")
	}
	checked := func() bool {
		t.Helper()
		is, err := isChecked(dir)
		if err != nil {
			t.Fatal(err)
		}
		return is
	}
	write("proof/RESULT.md", "# Result\n")
	if checked() {
		t.Error("a result without a sum counts as one")
	}
	sum, err := sumOf(dir)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	writeSum(&b, sum)
	write("proof/RESULT.md", "# Result\n"+b.String()+"\n## Traces\n")
	if !checked() {
		t.Error("unchanged files are not checked")
	}
	for name, counts := range files {
		write(name, "2")
		if checked() == counts {
			t.Errorf("with another %s, checked is %v", name, !counts)
		}
		write(name, "1")
	}
	write("proof/cfg/Door.two.cfg", "")
	if checked() {
		t.Error("a further configuration is not seen")
	}
}

// TestCheckedSpecificationsHaveFewerRuns checks that a build makes fewer runs of what a
// release has checked, and that each property still refutes something.
func TestCheckedSpecificationsHaveFewerRuns(t *testing.T) {
	configs := []*Config{door(t, "holds"), door(t, "violated")}
	mutants := []Mutant{
		{Name: "long", Config: "Door.holds", Bug: "crowd", Property: "Few", Steps: 6, Lane: "build"},
		{Name: "short", Config: "Door.holds", Bug: "rush", Property: "Few", Steps: 4, Lane: "build"},
		{Name: "shortest", Config: "Door.holds", Bug: "push", Property: "Few", Steps: 3, Lane: "release"},
		{Name: "other", Config: "Door.holds", Bug: "crowd", Property: "Fewer", Steps: 6, Lane: "build"},
	}
	names := func(release, same bool) string {
		t.Helper()
		runs, err := plan(configs, mutants, release, same)
		if err != nil {
			t.Fatal(err)
		}
		var all []string
		for _, r := range runs {
			all = append(all, strings.TrimPrefix(r.Name, "Door."))
		}
		return strings.Join(all, "; ")
	}
	if got := names(false, true); got != "holds; violated Few; holds with short; holds with other" {
		t.Errorf("unchanged: %s", got)
	}
	if got := names(false, false); got != "holds; violated Few; violated Fewer; violated Filled; holds with long; holds with short; holds with other" {
		t.Errorf("changed: %s", got)
	}
	if got := names(true, true); got != "holds; violated Few; violated Fewer; violated Filled; holds with long; holds with short; holds with shortest; holds with other" {
		t.Errorf("release: %s", got)
	}
}
