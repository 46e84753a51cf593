package main

import (
	"bytes"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
)

// catalogue is the page of faults, which is generated as a whole.
const catalogue = "docs/faults.md"

// column is a thing that faults can concern: a store, or a part of Holdfast
// that is the same for every store.
type column struct{ key, title string }

var columns = []column{
	{"core", "core"}, {"command", "command"}, {"fence", "fence"},
	{"memory", "memory"}, {"sqlite", "SQLite"},
	{"redis", "Redis"}, {"sentinel", "Sentinel"}, {"cluster", "Cluster"}, {"redlock", "RedLock"},
	{"etcd", "etcd"}, {"postgres", "PostgreSQL"}, {"mysql", "MySQL"}, {"zookeeper", "ZooKeeper"},
}

// groups are shorter words for several columns.
var groups = map[string]string{
	"stores":  "memory sqlite redis sentinel cluster redlock etcd postgres mysql zookeeper",
	"servers": "redis sentinel cluster redlock etcd postgres mysql zookeeper",
	"sql":     "sqlite postgres mysql",
}

// family is a section of the page.
type family struct {
	title     string
	elsewhere string // why its faults concern no other column; "" if each fault has a reason of its own
	faults    []fault
}

// fault is something that goes wrong around a lock. Its number never changes,
// because tests are named after it.
type fault struct {
	number    int
	what      string
	on        string            // the columns and groups that it can befall, separated by spaces
	elsewhere string            // why it concerns no other store, if the family has no reason
	untested  map[string]string // by column: why it has no test there
}

// befalls returns the columns that a fault concerns, in their order.
func (f fault) befalls() []string {
	var named []string
	for _, word := range strings.Fields(f.on) {
		if group, ok := groups[word]; ok {
			named = append(named, strings.Fields(group)...)
		} else {
			named = append(named, word)
		}
	}
	var in []string
	for _, c := range columns {
		if slices.Contains(named, c.key) {
			in = append(in, c.key)
		}
	}
	return in
}

// place is one cell of the page.
type place struct {
	fault  int
	column string
}

const preface = `# Faults, one by one

The known ways in which locks fail, and how many tests cause each one on purpose.
` + "`go run ./internal/docsgen`" + ` counts the tests in the source: a test has the number of
its fault in its name (` + "`TestF27_…`" + `) or in its comment (` + "`Covers: F1, F4.`" + `), and the
cases of the suite that every store runs (package drivertest) have the numbers of
theirs. ` + "`go run ./internal/docsgen -tests`" + ` prints the name of each test. A build fails
if a fault has neither a test nor a reason on something that it can befall. CI also
fails if a test that is counted here did not run and pass, so there is no other record
of results.

A number counts the tests, ` + "`–`" + ` means that the fault cannot happen there, and ` + "`*`" + `
that it has no test there; the reasons are below the tables. *core* is what all stores
share, *command* is ` + "`holdfast`" + `, and *fence* stands for the guards of a resource.

[safety.md](safety.md) has the other half: what random faults found in many clients
at work.
`

// faultPage returns the page made of the list and of the tests below a module's
// root.
func faultPage(fsys fs.FS) ([]byte, error) {
	tests, err := catalogued(fsys, families)
	if err != nil {
		return nil, err
	}
	return writeFaults(families, tests), nil
}

// faultTests returns the names of the tests that the page counts: a line for
// each fault and column, with the fault's number, the column and the tests.
func faultTests(fsys fs.FS) ([]byte, error) {
	tests, err := catalogued(fsys, families)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	for _, fam := range families {
		for _, f := range fam.faults {
			for _, c := range columns {
				if names := tests[place{f.number, c.key}]; len(names) > 0 {
					fmt.Fprintf(&b, "F%d %s %s\n", f.number, c.key, strings.Join(names, " "))
				}
			}
		}
	}
	return b.Bytes(), nil
}

func writeFaults(families []family, tests map[place][]string) []byte {
	var b strings.Builder
	b.WriteString(preface)
	for _, fam := range families {
		fmt.Fprintf(&b, "\n## %s\n\n", fam.title)
		if fam.elsewhere != "" {
			fmt.Fprintf(&b, "%s\n\n", fam.elsewhere)
		}
		b.WriteString("| | |")
		for _, c := range columns {
			fmt.Fprintf(&b, " %s |", c.title)
		}
		b.WriteString("\n|---|---|" + strings.Repeat("---|", len(columns)) + "\n")
		for _, f := range fam.faults {
			writeFault(&b, f, tests)
		}
	}
	b.WriteString("\n## Why a fault cannot happen elsewhere\n\n")
	writeReasons(&b, families, func(f fault) map[string][]string {
		if f.elsewhere == "" {
			return nil
		}
		return map[string][]string{f.elsewhere: nil}
	})
	b.WriteString("\n## Why a fault has no test\n\n")
	writeReasons(&b, families, func(f fault) map[string][]string {
		reasons := map[string][]string{}
		for _, c := range columns {
			if reason := f.untested[c.key]; reason != "" {
				reasons[reason] = append(reasons[reason], c.title)
			}
		}
		return reasons
	})
	return []byte(b.String())
}

// writeFault writes the row of a fault.
func writeFault(b *strings.Builder, f fault, tests map[place][]string) {
	fmt.Fprintf(b, "| F%d | %s |", f.number, f.what)
	in := f.befalls()
	for _, c := range columns {
		n := len(tests[place{f.number, c.key}])
		switch {
		case n > 0:
			fmt.Fprintf(b, " %d |", n)
		case slices.Contains(in, c.key):
			b.WriteString(" * |")
		default:
			b.WriteString(" – |")
		}
	}
	b.WriteString("\n")
}

// writeReasons writes a list of reasons, each once with all its faults, in the
// order of the first ones. reasonsOf returns the reasons of a fault, each with
// the columns that it is about; nil are all columns of which nothing else is said.
func writeReasons(b *strings.Builder, families []family, reasonsOf func(f fault) map[string][]string) {
	var order []string
	faults := map[string][]string{}
	for _, fam := range families {
		for _, f := range fam.faults {
			reasons := reasonsOf(f)
			for _, reason := range slices.Sorted(maps.Keys(reasons)) {
				if faults[reason] == nil {
					order = append(order, reason)
				}
				name := fmt.Sprint("F", f.number)
				if on := reasons[reason]; on != nil {
					name += " on " + strings.Join(on, ", ")
				}
				faults[reason] = append(faults[reason], name)
			}
		}
	}
	for _, reason := range order {
		fmt.Fprintf(b, "- %s: %s\n", strings.Join(faults[reason], ", "), reason)
	}
}

// missing returns the mismatches between the list and the tests.
func missing(families []family, tests map[place][]string) (bad []string) {
	known := map[place]bool{}
	next := 1
	for _, fam := range families {
		for _, f := range fam.faults {
			if f.number != next {
				bad = append(bad, fmt.Sprintf("F%d stands where F%d should", f.number, next))
			}
			next = f.number + 1
			in := f.befalls()
			if len(in) == 0 || f.what == "" {
				bad = append(bad, fmt.Sprintf("F%d says nothing, or befalls nothing", f.number))
			}
			for _, word := range strings.Fields(f.on) {
				if groups[word] == "" && !slices.Contains(in, word) {
					bad = append(bad, fmt.Sprintf("F%d befalls %q, which is no column", f.number, word))
				}
			}
			for _, store := range strings.Fields(groups["stores"]) {
				if !slices.Contains(in, store) && f.elsewhere == "" && fam.elsewhere == "" {
					bad = append(bad, fmt.Sprintf("F%d: nothing says why it cannot befall %s", f.number, store))
				}
			}
			for key := range f.untested {
				if !slices.Contains(in, key) {
					bad = append(bad, fmt.Sprintf("F%d gives a reason for %q, which it does not befall", f.number, key))
				}
			}
			for _, key := range in {
				at := place{f.number, key}
				known[at] = true
				switch names := tests[at]; {
				case len(names) == 0 && f.untested[key] == "":
					bad = append(bad, fmt.Sprintf("F%d on %s has neither a test nor a reason", f.number, key))
				case len(names) > 0 && f.untested[key] != "":
					bad = append(bad, fmt.Sprintf("F%d on %s has a test, %s, and a reason for having none", f.number, key, names[0]))
				}
			}
		}
	}
	for at, names := range tests {
		if !known[at] {
			bad = append(bad, fmt.Sprintf("%s covers F%d on %s, which the list says it cannot befall", names[0], at.fault, at.column))
		}
	}
	slices.Sort(bad)
	return bad
}
