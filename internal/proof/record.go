package main

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// A release notes in RESULT.md which modules it has checked, by a sum of each. A build
// makes all its runs of a module that has changed since, and of the others one refutation
// for each property: what became of the rest is known, since a run depends on nothing else.

// recordHead begins the section of RESULT.md with the sums.
const recordHead = "\n## Modules\n"

// moduleSums returns a sum of each module in a folder that has configurations: of its text
// and those of the modules that it uses, of its configurations and of its mutants.
func moduleSums(folder string, mutants []Mutant) (map[string]string, error) {
	texts, err := readAll(filepath.Join(folder, "*.tla"))
	if err != nil {
		return nil, err
	}
	configs, err := readAll(filepath.Join(folder, "cfg", "*.cfg"))
	if err != nil {
		return nil, err
	}
	parts := map[string][]string{}
	for _, name := range slices.Sorted(maps.Keys(configs)) {
		module, _, _ := strings.Cut(name, ".")
		parts[module] = append(parts[module], name, configs[name])
	}
	for _, m := range mutants {
		module, _, _ := strings.Cut(m.Config, ".")
		text, err := json.Marshal(m)
		if err != nil {
			return nil, err
		}
		parts[module] = append(parts[module], string(text))
	}
	sums := map[string]string{}
	for module, all := range parts {
		for _, name := range slices.Sorted(maps.Keys(used(module, texts, map[string]bool{}))) {
			all = append(all, name, texts[name])
		}
		sums[module] = fmt.Sprintf("%x", sha256.Sum256([]byte(strings.Join(all, "\x00"))))[:16]
	}
	return sums, nil
}

// readAll returns the texts of files, by their names without extensions.
func readAll(pattern string) (map[string]string, error) {
	files, err := filepath.Glob(pattern)
	if err != nil {
		return nil, err
	}
	texts := map[string]string{}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			return nil, err
		}
		texts[strings.TrimSuffix(filepath.Base(f), filepath.Ext(f))] = string(text)
	}
	return texts, nil
}

var usesModule = regexp.MustCompile(`(?m)^EXTENDS (.+)$|\bINSTANCE (\w+)`)

// used adds a module, and those of the folder that it uses, to a set, and returns it.
func used(module string, texts map[string]string, set map[string]bool) map[string]bool {
	text, ok := texts[module]
	if !ok || set[module] { // a standard module, or known already
		return set
	}
	set[module] = true
	for _, m := range usesModule.FindAllStringSubmatch(text, -1) {
		for name := range strings.SplitSeq(m[1]+m[2], ",") {
			used(strings.TrimSpace(name), texts, set)
		}
	}
	return set
}

// writeSums writes the section with the sums.
func writeSums(w io.Writer, sums map[string]string) {
	fmt.Fprintf(w, "%s\nA build makes fewer runs of a module that is still as it was in this release: its text,\n", recordHead)
	fmt.Fprintf(w, "those of the modules that it uses, its configurations and its mutants have this sum.\n\n| module | sum |\n|---|---|\n")
	for _, module := range slices.Sorted(maps.Keys(sums)) {
		fmt.Fprintf(w, "| %s | %s |\n", module, sums[module])
	}
}

var sumRow = regexp.MustCompile(`(?m)^\| (\w+) \| ([0-9a-f]{16}) \|$`)

// readSums returns the sums in a RESULT.md.
func readSums(text string) map[string]string {
	sums := map[string]string{}
	_, section, _ := strings.Cut(text, recordHead)
	section, _, _ = strings.Cut(section, "\n## ")
	for _, m := range sumRow.FindAllStringSubmatch(section, -1) {
		sums[m[1]] = m[2]
	}
	return sums
}

// unchanged returns the modules that are as the release of a RESULT.md has checked them.
func unchanged(folder, result string, mutants []Mutant) (map[string]bool, error) {
	text, err := os.ReadFile(filepath.Clean(result))
	if err != nil {
		return nil, err
	}
	now, err := moduleSums(folder, mutants)
	if err != nil {
		return nil, err
	}
	same := map[string]bool{}
	for module, sum := range readSums(string(text)) {
		same[module] = now[module] == sum
	}
	return same, nil
}

// sample returns the names of the mutants of a build that have the shortest counterexample
// of all with their module and property.
func sample(configs []*Config, mutants []Mutant) map[string]bool {
	shortest := map[string]*Mutant{}
	for i := range mutants {
		m := &mutants[i]
		c := configOf(configs, m.Config)
		if m.Lane != "build" || c.Lane != "build" {
			continue
		}
		key := c.Module() + " " + m.Property
		if s := shortest[key]; s == nil || m.Steps < s.Steps {
			shortest[key] = m
		}
	}
	names := map[string]bool{}
	for _, m := range shortest {
		names[m.Name] = true
	}
	return names
}
