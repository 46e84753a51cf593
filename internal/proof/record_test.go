package main

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestSumsTellWhatHasChanged changes one file after the other of a folder, and asks which
// modules are still as a release has checked them.
func TestSumsTellWhatHasChanged(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	files := map[string]string{
		"Base.tla": "EXTENDS Naturals\n", "Door.tla": "EXTENDS Naturals, Base\n", "Gate.tla": "Abs == INSTANCE Door WITH x <- y\n",
		"Wall.tla": "EXTENDS Naturals\n", "cfg/Door.one.cfg": "1", "cfg/Gate.one.cfg": "1", "cfg/Wall.one.cfg": "1",
	}
	for name, text := range files {
		write(name, text)
	}
	mutants := []Mutant{{Name: "open", Config: "Wall.one", Bug: "open"}}
	sums, err := moduleSums(dir, mutants)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	b.WriteString("# Result\n\n| Door | 0123456789abcdef |\n")
	writeSums(&b, sums)
	b.WriteString("\n## Traces\n\n| Gate | 0123456789abcdef |\n")
	write("RESULT.md", b.String())
	if got := readSums(b.String()); !maps.Equal(got, sums) || len(got) != 3 {
		t.Fatalf("read %v, want %v", got, sums)
	}
	same := func(mutants []Mutant) string {
		t.Helper()
		all, err := unchanged(dir, filepath.Join(dir, "RESULT.md"), mutants)
		if err != nil {
			t.Fatal(err)
		}
		maps.DeleteFunc(all, func(_ string, same bool) bool { return !same })
		return strings.Join(slices.Sorted(maps.Keys(all)), " ")
	}
	if got := same(mutants); got != "Door Gate Wall" {
		t.Errorf("unchanged are %q", got)
	}
	if got := same([]Mutant{{Name: "open", Config: "Wall.one", Bug: "shut"}}); got != "Door Gate" {
		t.Errorf("with another mutant, unchanged are %q", got)
	}
	for name, want := range map[string]string{
		"Base.tla": "Wall", "Door.tla": "Wall", "Gate.tla": "Door Wall", "Wall.tla": "Door Gate", "cfg/Door.one.cfg": "Gate Wall", "cfg/Door.two.cfg": "Gate Wall",
	} {
		write(name, files[name]+"\n\\* more")
		if got := same(mutants); got != want {
			t.Errorf("with another %s, unchanged are %q, want %q", name, got, want)
		}
		if files[name] != "" {
			write(name, files[name])
		} else if err := os.Remove(filepath.Join(dir, name)); err != nil {
			t.Error(err)
		}
	}
}

// TestUnchangedModulesHaveFewerRuns checks that a build makes fewer runs of a module that a
// release has checked, and that each property of it still refutes something.
func TestUnchangedModulesHaveFewerRuns(t *testing.T) {
	configs := []*Config{door(t, "holds"), door(t, "violated")}
	mutants := []Mutant{
		{Name: "long", Config: "Door.holds", Bug: "crowd", Property: "Few", Steps: 6, Lane: "build"},
		{Name: "short", Config: "Door.holds", Bug: "rush", Property: "Few", Steps: 4, Lane: "build"},
		{Name: "shortest", Config: "Door.holds", Bug: "push", Property: "Few", Steps: 3, Lane: "release"},
		{Name: "other", Config: "Door.holds", Bug: "crowd", Property: "Fewer", Steps: 6, Lane: "build"},
	}
	names := func(release, same bool) string {
		t.Helper()
		runs, err := plan(configs, mutants, release, map[string]bool{"Door": same})
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
