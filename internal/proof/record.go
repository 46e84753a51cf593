package main

import (
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// A release notes in RESULT.md that it has checked the specifications, by a sum of all that
// its runs depend on. While that sum is the same, a build makes one refutation for each
// property, and counts no actions, and its lane of traces does not ask which silent actions
// scripts need: what became of the rest is known. Else it makes all runs of its lane.

// checkedFiles are the files that the runs depend on: the modules, configurations and
// mutants, the checker's own rules, and the script that names the version of TLC.
var checkedFiles = []string{"proof/*.tla", "proof/cfg/*.cfg", "proof/mutants.json", "internal/proof/*.go", "scripts/proof-tools"}

// sumOf returns the sum of the files below a folder.
func sumOf(root string) (string, error) {
	sum := sha256.New()
	for _, pattern := range checkedFiles {
		files, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(pattern)))
		if err != nil {
			return "", err
		}
		slices.Sort(files)
		for _, f := range files {
			if strings.HasSuffix(f, "_test.go") {
				continue
			}
			text, err := os.ReadFile(filepath.Clean(f))
			if err != nil {
				return "", err
			}
			fmt.Fprintf(sum, "%s %d\n%s", filepath.Base(f), len(text), text)
		}
	}
	return fmt.Sprintf("%x", sum.Sum(nil)), nil
}

// recordHead begins the section of RESULT.md with the sum.
const recordHead = "\n## Checked\n"

// writeSum writes the section with a sum.
func writeSum(w io.Writer, sum string) {
	fmt.Fprintf(w, "%s\nThe modules, configurations, mutants and rules of this release have the sum\n`%s`.\n", recordHead, sum)
	fmt.Fprintf(w, "As long as they have it, a build makes one refutation for each property.\n")
}

var sumText = regexp.MustCompile("(?m)^`([0-9a-f]{64})`\\.$")

// isChecked reports whether a release that RESULT.md tells of has checked the files below a
// folder as they are.
func isChecked(root string) (bool, error) {
	text, err := os.ReadFile(filepath.Join(root, "proof", "RESULT.md"))
	if err != nil {
		return false, err
	}
	now, err := sumOf(root)
	if err != nil {
		return false, err
	}
	_, section, _ := strings.Cut(string(text), recordHead)
	section, _, _ = strings.Cut(section, "\n## ")
	m := sumText.FindStringSubmatch(section)
	return m != nil && m[1] == now, nil
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
