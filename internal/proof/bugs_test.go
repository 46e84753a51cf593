package main

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/testkit/broken"
)

// TestBugsHaveMutants checks docs/proof/bugs.md against the bugs that are planted in
// drivers, that docs/safety.md says were found, that docs/faults.md numbers, and that were
// reported from outside: each has a row, and each row names a mutant with its property, a counterexample that is
// expected, or a reason.
func TestBugsHaveMutants(t *testing.T) {
	configs, mutants := specs(t)
	page, err := os.ReadFile("../../docs/proof/bugs.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := bugRows(string(page))
	want := bugsKnown(t)
	for _, bug := range want {
		if _, ok := rows[bug]; !ok {
			t.Errorf("%s has no row", bug)
		}
	}
	for bug, row := range rows {
		if !slices.Contains(want, bug) {
			t.Errorf("%s has a row, and there is no such bug", bug)
		}
		if bad := row.check(configs, mutants); bad != "" {
			t.Errorf("%s: %s", bug, bad)
		}
	}
}

// bugRow says what stands for a bug.
type bugRow struct {
	mutant   string // or a configuration that is expected to be violated, or a reason
	property string // "–" after a reason
}

// check returns what is wrong with the row.
func (r bugRow) check(configs []*Config, mutants []Mutant) string {
	if r.property == "–" {
		if len(strings.Fields(r.mutant)) < 3 {
			return "the reason is short: " + r.mutant
		}
		return ""
	}
	if i := slices.IndexFunc(mutants, func(m Mutant) bool { return m.Name == r.mutant }); i >= 0 {
		if m := mutants[i]; m.Property != r.property {
			return "mutant " + m.Name + " is refuted by " + m.Property + ", not by " + r.property
		}
		return ""
	}
	if c := configOf(configs, r.mutant); c == nil || c.Expect != "violated" || !slices.Contains(c.Invariants, r.property) {
		return "no mutant and no expected counterexample is " + r.mutant + ", refuted by " + r.property
	}
	return ""
}

// bugRows returns the rows of the tables of a page, by the bug in their first column.
func bugRows(page string) map[string]bugRow {
	rows := map[string]bugRow{}
	for line := range strings.Lines(page) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) != 3 || strings.HasPrefix(cells[0], "---") || strings.HasSuffix(strings.TrimSpace(cells[2]), "refuted by") {
			continue
		}
		rows[strings.Trim(strings.TrimSpace(cells[0]), "`")] = bugRow{strings.TrimSpace(cells[1]), strings.TrimSpace(cells[2])}
	}
	return rows
}

// firstOutsideFault is the first fault that was found by attacks from outside.
const firstOutsideFault = 105

// reports is the number of reports from outside, of which each has a number.
const reports = 70

// bugsKnown returns the names of the bugs that need a row.
func bugsKnown(t *testing.T) (all []string) {
	for _, f := range broken.Flaws() {
		all = append(all, f.Name)
	}
	for _, b := range broken.Bugs() {
		all = append(all, b.Name)
	}
	safety, err := os.ReadFile("../../docs/safety.md")
	if err != nil {
		t.Fatal(err)
	}
	_, found, ok := strings.Cut(string(safety), "**Found.**")
	found, _, ok2 := strings.Cut(found, "**Exposed scenarios**")
	if !ok || !ok2 {
		t.Fatal("docs/safety.md does not tell what was found")
	}
	tests := regexp.MustCompile("`((?:[a-z]+\\.)?Test[A-Za-z0-9_]+)`").FindAllStringSubmatch(found, -1)
	for _, m := range tests {
		all = append(all, m[1])
	}
	faults, err := os.ReadFile("../../docs/faults.md")
	if err != nil {
		t.Fatal(err)
	}
	numbers := regexp.MustCompile(`(?m)^\| F(\d+) \|`).FindAllStringSubmatch(string(faults), -1)
	for _, m := range numbers {
		if n, _ := strconv.Atoi(m[1]); n >= firstOutsideFault { // the expression has digits alone
			all = append(all, "F"+m[1])
		}
	}
	for n := range reports {
		all = append(all, fmt.Sprintf("N%d", n+1))
	}
	if len(tests) < 5 || len(numbers) < 100 {
		t.Errorf("read %d tests and %d faults off the pages", len(tests), len(numbers))
	}
	return all
}

// TestBugRowsCanFail checks that wrong rows are seen.
func TestBugRowsCanFail(t *testing.T) {
	configs, mutants := specs(t)
	for _, row := range []bugRow{
		{"no", "–"},
		{"no such mutant", "Exclusion"},
		{mutants[0].Name, "Exclusion"},
		{"Line.two", "Exclusion"},
		{"LineStory.forgets", "Fifo"},
	} {
		if row.check(configs, mutants) == "" {
			t.Errorf("row %q, refuted by %s, passes", row.mutant, row.property)
		}
	}
	if len(bugRows("| bug | mutant, or why there is none | refuted by |\n|---|---|---|\n| `a` | b c | D |\n")) != 1 {
		t.Error("the rows of a table are not read")
	}
}
