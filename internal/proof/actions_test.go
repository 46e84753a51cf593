package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// actionsPage is the table of actions, and of what each models.
const actionsPage = "../../docs/proof/actions.md"

// modelled returns what each action models, as the page says: "Line.Ask" and a
// list of duties, functions and events.
func modelled(page string) map[string][]string {
	all := map[string][]string{}
	for _, m := range regexp.MustCompile(`(?m)^\| (\w+) \| (\w+) \| (.+) \|$`).FindAllStringSubmatch(page, -1) {
		if m[1] != "module" {
			if strings.HasPrefix(m[3], "event: ") {
				all[m[1]+"."+m[2]] = []string{m[3]}
			} else {
				all[m[1]+"."+m[2]] = strings.Split(m[3], ", ")
			}
		}
	}
	return all
}

// countedActions returns the actions that the model checker counted in the last
// release, as "Line.Ask".
func countedActions(t *testing.T) (all []string) {
	t.Helper()
	_, text, ok := strings.Cut(readFile(t, "../../proof/RESULT.md"), "\n## Actions\n")
	if !ok {
		t.Fatal("RESULT.md counts no actions")
	}
	count := regexp.MustCompile(`([A-Z]\w*) \d+`)
	for line := range strings.Lines(text) {
		module, counts, ok := strings.Cut(strings.TrimPrefix(line, "- **"), "**: ")
		if strings.HasPrefix(line, "Abandons ") { // how many traces took each part of Trace
			module, counts, ok = "Trace", line, true
		}
		if !ok {
			continue
		}
		for _, m := range count.FindAllStringSubmatch(counts, -1) {
			if m[1] != "Init" {
				all = append(all, module+"."+m[1])
			}
		}
	}
	if len(all) < 100 {
		t.Errorf("%d actions are counted", len(all))
	}
	return all
}

// writtenActions returns the actions of each module, as it is written: those of its Next,
// and the parts of Trace's. A run may never take one of them, and count none.
func writtenActions(t *testing.T) (all []string) {
	t.Helper()
	parts, err := takenParts("../../proof/Trace.tla")
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range parts {
		all = append(all, "Trace."+part)
	}
	for name, text := range modules(t) {
		if name == "Trace" || name == picture {
			continue
		}
		for _, action := range actionsOfNext(text) {
			all = append(all, name+"."+action)
		}
	}
	return all
}

// TestActionsModelSomething checks that each action which a module has, or the model checker
// counts, has a row, and that each row names duties and functions that exist, or an event.
func TestActionsModelSomething(t *testing.T) {
	rows := modelled(readFile(t, actionsPage))
	written := writtenActions(t)
	have := slices.Concat(written, countedActions(t))
	for _, action := range slices.Compact(slices.Sorted(slices.Values(have))) {
		if rows[action] == nil {
			t.Errorf("%s has no row", action)
		}
	}
	for _, want := range []string{"Trace.Gap", "Seam.LeavePending", "HandOver.LateJoin", "Owner.Tick"} { // no run counts the first two
		if !slices.Contains(written, want) {
			t.Errorf("%s is not found in its module", want)
		}
	}
	for action, models := range rows {
		if !slices.Contains(have, action) {
			t.Errorf("%s has a row, and no module has it", action)
		}
		for _, what := range models {
			if bad := unknownModel(t, what); bad != "" {
				t.Errorf("%s: %s", action, bad)
			}
		}
	}
	for _, wrong := range []string{"Join 99", "`core/queue.nothing`", "`nowhere/queue.join`", "event: x", "something"} {
		if unknownModel(t, wrong) == "" {
			t.Errorf("%q is taken for a duty, a function or an event", wrong)
		}
	}
}

// unknownModel returns what is wrong with one entry of a row.
func unknownModel(t *testing.T, what string) string {
	t.Helper()
	if event, ok := strings.CutPrefix(what, "event: "); ok {
		if len(strings.Fields(event)) < 3 {
			return "the event is not told: " + what
		}
		return ""
	}
	if m := regexp.MustCompile("^`(\\w+)/(\\w+)\\.(\\w+)`$").FindStringSubmatch(what); m != nil {
		folder := m[1]
		if folder == "core" {
			folder = "."
		}
		files, err := filepath.Glob(filepath.Join("../..", folder, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		method := regexp.MustCompile(`(?m)^func \(\w+ \*?` + m[2] + `\) ` + m[3] + `\(`)
		for _, f := range files {
			if !strings.HasSuffix(f, "_test.go") && method.MatchString(readFile(t, f)) {
				return ""
			}
		}
		return "there is no function " + what
	}
	source, err := os.ReadFile("../../driver/driver.go")
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(duties(string(source)), what) {
		return "there is no duty " + what
	}
	return ""
}
