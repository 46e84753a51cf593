package main

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// modules returns the text of each specification.
func modules(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob("../../proof/*.tla")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d modules: %v", len(files), err)
	}
	all := map[string]string{}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		all[strings.TrimSuffix(filepath.Base(f), ".tla")] = string(text)
	}
	return all
}

func specs(t *testing.T) ([]*Config, []Mutant) {
	t.Helper()
	configs, err := readConfigs("../../proof/cfg")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("../../proof/mutants.json")
	if err != nil {
		t.Fatal(err)
	}
	mutants, err := parseMutants(text, configs)
	if err != nil {
		t.Fatal(err)
	}
	return configs, mutants
}

func TestModulesAreShortAndSayWhatTheyAreFor(t *testing.T) {
	for name, text := range modules(t) {
		if n := strings.Count(text, "\n"); n > 300 {
			t.Errorf("%s has %d lines", name, n)
		}
		if lines := strings.SplitN(text, "\n", 3); !strings.HasPrefix(lines[1], "(***") {
			t.Errorf("%s has no header", name)
		}
		if strings.Contains(text, "SYMMETRY") || strings.Contains(text, "CONSTRAINT") {
			t.Errorf("%s bounds itself by something else than guards of its actions", name)
		}
	}
}

func TestModulesHaveConfigurations(t *testing.T) {
	configs, _ := specs(t)
	all := modules(t)
	for _, c := range configs {
		if all[c.Module()] == "" {
			t.Errorf("%s.cfg is for a module that is not there", c.Name)
		}
	}
	for name := range all {
		if name == "Trace" { // traces.go has its configuration
			continue
		}
		used := slices.ContainsFunc(configs, func(c *Config) bool { return c.Module() == name }) ||
			slices.ContainsFunc(slices.Collect(maps.Values(all)), func(text string) bool { return strings.Contains(text, "EXTENDS "+name+"\n") })
		if !used {
			t.Errorf("module %s is not checked", name)
		}
	}
}

// TestFlawsAreMutants checks that every mistake which a module can make is a
// mutant, and that the modules can make the mistake of every mutant.
func TestFlawsAreMutants(t *testing.T) {
	_, mutants := specs(t)
	flaw := regexp.MustCompile(`Flaw\("([a-z-]+)"\)`)
	planted := map[string]bool{}
	for _, text := range modules(t) {
		for _, m := range flaw.FindAllStringSubmatch(text, -1) {
			planted[m[1]] = true
		}
	}
	used := map[string]bool{}
	for _, m := range mutants {
		used[m.Bug] = true
		if m.Bug != "" && !planted[m.Bug] {
			t.Errorf("mutant %q: no module has the flaw %q", m.Name, m.Bug)
		}
	}
	for name := range planted {
		if !used[name] {
			t.Errorf("flaw %q is no mutant", name)
		}
	}
}

// withoutMutants are modules that hold by something else than mutants.
var withoutMutants = map[string]string{
	"LineAbs": "the mutants of the modules that refine it are refuted by it, which TestRefinementsHaveMutants checks",
}

// TestEveryModuleHasMutantsInTheBuild checks that no module is only ever seen to hold.
func TestEveryModuleHasMutantsInTheBuild(t *testing.T) {
	configs, mutants := specs(t)
	have := map[string]int{}
	for _, m := range mutants {
		if c := configOf(configs, m.Config); c.Lane == "build" && m.Lane == "build" {
			have[c.Module()]++
		}
	}
	for _, c := range configs {
		m := c.Module()
		if c.Expect == "holds" && have[m] < 2 && withoutMutants[m] == "" {
			t.Errorf("module %s has %d mutants in the build", m, have[m])
		}
	}
	for m := range withoutMutants {
		if have[m] > 0 {
			t.Errorf("module %s is listed as one without mutants, and has %d", m, have[m])
		}
	}
}

// impliedProperties are those that the properties of other modules imply, and which no
// mutant refutes.
var impliedProperties = map[string]string{
	"LineAbs Exclusion": "of the abstract queue itself: the mutants of the modules that refine it are refuted by Refines",
	"LineAbs InOrder":   "of the abstract queue itself",
	"LineAbs OneOwner":  "of the abstract queue itself",
}

// TestEveryPropertyRefutesAMutantInTheBuild checks that each property which a module is
// checked for refutes a mutant of that module: one that refutes none could be true of
// everything.
func TestEveryPropertyRefutesAMutantInTheBuild(t *testing.T) {
	configs, mutants := specs(t)
	refutes := map[string]bool{}
	for _, m := range mutants {
		c := configOf(configs, m.Config)
		refutes[c.Module()+" "+m.Property] = refutes[c.Module()+" "+m.Property] || m.Lane == "build" && c.Lane == "build"
	}
	checked := map[string]bool{}
	for _, c := range configs {
		for _, p := range slices.Concat(c.Invariants, c.Properties) {
			if c.Expect == "holds" {
				checked[c.Module()+" "+p] = true
			}
		}
	}
	for p := range checked {
		if !refutes[p] && impliedProperties[p] == "" {
			t.Errorf("%s refutes no mutant in the build", p)
		}
	}
	for p := range impliedProperties {
		if !checked[p] || refutes[p] {
			t.Errorf("%s is listed as one that refutes no mutant: checked %v, refutes one %v", p, checked[p], refutes[p])
		}
	}
}

// TestPageListsEveryProperty checks that docs/proof/properties.md says of each property
// that a configuration checks what it says, and of no other.
func TestPageListsEveryProperty(t *testing.T) {
	configs, _ := specs(t)
	listed := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^\| ([A-Z][A-Za-z, ]+) \|`).FindAllStringSubmatch(readFile(t, "../../docs/proof/properties.md"), -1) {
		for p := range strings.SplitSeq(m[1], ", ") {
			listed[p] = true
		}
	}
	checked := map[string]bool{}
	for _, c := range configs {
		for _, p := range slices.Concat(c.Invariants, c.Properties) {
			if c.Expect == "holds" {
				checked[p] = true
			}
		}
	}
	for p := range checked {
		if !listed[p] {
			t.Errorf("%s has no row", p)
		}
	}
	for p := range listed {
		if !checked[p] {
			t.Errorf("%s has a row, and no configuration checks it", p)
		}
	}
}

// TestActionsOfEveryModuleAreCounted checks that of each module a build counts the
// actions in one configuration that holds: else an action that is never taken would not
// be seen.
func TestActionsOfEveryModuleAreCounted(t *testing.T) {
	configs, _ := specs(t)
	counted := map[string]bool{}
	for _, c := range configs {
		if c.Expect == "holds" && c.Lane == "build" && !c.Uncounted {
			counted[c.Module()] = true
		}
	}
	for _, c := range configs {
		if c.Expect == "holds" && !counted[c.Module()] {
			t.Errorf("the actions of module %s are counted in no build", c.Module())
		}
	}
}

// refining are the modules that are to be checked against the abstract queue.
var refining = []string{"HandOver", "Line", "Nodes", "Owner"}

// TestRefinementsHaveMutants checks that each of these modules is checked against
// the abstract queue in a build, and has a mutant that this refutes.
func TestRefinementsHaveMutants(t *testing.T) {
	configs, mutants := specs(t)
	for _, module := range refining {
		if !strings.Contains(modules(t)[module], "Refines == Abs!Spec") {
			t.Errorf("module %s does not say which queue its states are", module)
		}
		if !slices.ContainsFunc(configs, func(c *Config) bool {
			return c.Module() == module && c.Expect == "holds" && c.Lane == "build" && c.Symmetry == "" && slices.Contains(c.Properties, "Refines")
		}) {
			t.Errorf("no configuration checks that module %s refines the abstract queue", module)
		}
		if !slices.ContainsFunc(mutants, func(m Mutant) bool {
			return configOf(configs, m.Config).Module() == module && m.Property == "Refines" && m.Lane == "build"
		}) {
			t.Errorf("no mutant of module %s is refuted by the abstract queue", module)
		}
	}
}

// notModelled are the duties of package driver that are no matter of order,
// time or messages, with the reason.
var notModelled = map[string]string{
	"Driver 1":  "concurrency inside a process: every request is one step here",
	"Driver 3":  "what a call costs",
	"Driver 4":  "which layer repeats: a repeated request is the same, whoever repeats it",
	"Driver 5":  "classes of errors",
	"Driver 7":  "whose clock: the specification has only the store's",
	"Traits 2":  "what a call costs",
	"Join 6":    "the limit of a lock is a constant: a Join of another limit is refused before it is a step",
	"Join 10":   "hints, by which nothing is decided",
	"Join 11":   "foreign values",
	"Join 12":   "a field of the driver's own",
	"Renew 4":   "follows from Renew 2, since an overdue place is dropped or there",
	"Renew 5":   "each request names one ticket here",
	"Renew 6":   "batches are for the cost",
	"Leave 3":   "a full store",
	"Watch 3":   "a gap: renewals repair lost pushes anyway, see LineLive",
	"Watch 4":   "Pushes = FALSE",
	"Inspect 1": "it only reads",
	"Inspect 2": "it only reads",
	"Names 2":   "it only reads",
	"Names 3":   "it only reads",
	"Close 1":   "resources of a process",
	"Close 3":   "resources of a process",
	"Close 4":   "resources of a process",
}

// TestDutiesAreModelledOrListed checks that each numbered duty of package driver
// is named by a specification and is what an action models, or is listed above: a change of the duties is a change
// of the specification.
func TestDutiesAreModelledOrListed(t *testing.T) {
	source, err := os.ReadFile("../../driver/driver.go")
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for _, m := range modules(t) {
		text.WriteString(m)
	}
	byAction := map[string]bool{"Driver 9": true} // an ASSUME of module Queue
	for _, models := range modelled(readFile(t, actionsPage)) {
		for _, duty := range models {
			byAction[duty] = true
		}
	}
	for _, duty := range duties(string(source)) {
		if byAction[duty] == (notModelled[duty] != "") {
			t.Errorf("%s is modelled by an action: %v, and listed as not: %v", duty, byAction[duty], notModelled[duty] != "")
		}
		method, n, _ := strings.Cut(duty, " ")
		named := regexp.MustCompile(`\b` + method + ` (?:\d+(?:,| and) )*` + n + `\b`).MatchString(text.String())
		switch {
		case named && notModelled[duty] != "":
			t.Errorf("%s is modelled and listed as not", duty)
		case !named && notModelled[duty] == "":
			t.Errorf("no specification names %s", duty)
		}
	}
}

// duties returns the numbered duties of the interface Driver, as "Join 3".
func duties(source string) (all []string) {
	item := regexp.MustCompile(`^\s*// +(\d+)\. `)
	method := regexp.MustCompile(`^\t([A-Z]\w+)\(`)
	var open []int
	for line := range strings.Lines(source) {
		if m := item.FindStringSubmatch(line); m != nil {
			n, _ := strconv.Atoi(m[1]) // the expression has digits alone
			open = append(open, n)
			continue
		}
		name := ""
		if strings.HasPrefix(line, "type Driver interface") {
			name = "Driver"
		} else if m := method.FindStringSubmatch(line); m != nil {
			name = m[1]
		}
		if name != "" {
			for _, n := range open {
				all = append(all, name+" "+strconv.Itoa(n))
			}
			open = nil
		}
	}
	return all
}

func TestDutiesAreFound(t *testing.T) {
	source, err := os.ReadFile("../../driver/driver.go")
	if err != nil {
		t.Fatal(err)
	}
	all := duties(string(source))
	for _, want := range []string{"Driver 1", "Driver 9", "Join 1", "Join 12", "Renew 7", "Leave 5", "Watch 5", "Break 3", "Close 4"} {
		if !slices.Contains(all, want) {
			t.Errorf("%s is not among %q", want, all)
		}
	}
	for duty := range notModelled {
		if !slices.Contains(all, duty) {
			t.Errorf("%s is listed, and there is no such duty", duty)
		}
	}
}

// TestPagesNameFilesThatExist checks that each Go file that the pages of the proof name is
// there.
func TestPagesNameFilesThatExist(t *testing.T) {
	have := map[string]bool{}
	if err := filepath.WalkDir("../..", func(path string, _ os.DirEntry, err error) error {
		have[filepath.Base(path)] = true
		return err
	}); err != nil {
		t.Fatal(err)
	}
	pages, err := filepath.Glob("../../docs/proof/*.md")
	if err != nil || len(pages) == 0 {
		t.Fatalf("%d pages: %v", len(pages), err)
	}
	named := 0
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile("`([a-z_/]+\\.go)`").FindAllStringSubmatch(string(text), -1) {
			if named++; !have[filepath.Base(m[1])] {
				t.Errorf("%s names %s, which is not there", page, m[1])
			}
		}
	}
	if named < 20 {
		t.Errorf("read %d names of files", named)
	}
}
