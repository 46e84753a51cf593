package main

import (
	"fmt"
	"io/fs"
	"slices"
	"strings"
)

// catalogue is the page of faults, which is written whole.
const catalogue = "docs/faults.md"

// A column is what a fault can befall: a store, or a part of Holdfast that is
// the same for every store.
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

// A family is a section of the page.
type family struct {
	title     string
	elsewhere string // why its faults befall no column that they do not name; "" where each fault says so
	faults    []fault
}

// A fault is something that goes wrong around a lock. Its number stays with it
// for ever: tests are named after it.
type fault struct {
	number    int
	what      string
	on        string            // the columns and groups that it can befall, separated by spaces
	elsewhere string            // why it befalls no other store, where the family does not say it
	untested  map[string]string // by column: why it has no test there
}

// befalls lists the columns that a fault concerns, in their order.
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

// A place is one cell of the page.
type place struct {
	fault  int
	column string
}

const preface = `# Faults, one by one

What is known to go wrong with locks, and the tests that make it go wrong on purpose.
The table is generated from the tests themselves, by ` + "`go run ./internal/docsgen`" + `:
a test is named after its fault (` + "`TestF27_…`" + `) or says which ones it covers in a
comment (` + "`Covers: F1, F4.`" + `), and the cases of the suite that every store runs
(package drivertest) carry the numbers of theirs. A build fails when a fault has
neither a test nor a reason on something that it can befall, and in CI when a test
that is named here was not run or did not pass: there is no other record of results,
because a build with a failure does not land.

In the tables a number counts the tests, ` + "`–`" + ` means that the fault cannot happen
there, and ` + "`*`" + ` that it has no test there, for the reason given below. *core* is
what stands above every store, *command* is ` + "`holdfast`" + `, *fence* are the guards of
a resource.

[safety.md](safety.md) has the other half: what random faults found in many clients
at work.
`

// faultPage writes the page out of the list and the tests below a module's root.
func faultPage(fsys fs.FS) ([]byte, error) {
	tests, err := catalogued(fsys, families)
	if err != nil {
		return nil, err
	}
	return writeFaults(families, tests), nil
}

func writeFaults(families []family, tests map[place][]string) []byte {
	var b strings.Builder
	b.WriteString(preface)
	for _, fam := range families {
		fmt.Fprintf(&b, "\n## %s\n\n", fam.title)
		if fam.elsewhere != "" {
			fmt.Fprintf(&b, "%s\n\n", fam.elsewhere)
		}
		b.WriteString("| |")
		for _, c := range columns {
			fmt.Fprintf(&b, " %s |", c.title)
		}
		b.WriteString("\n|---|" + strings.Repeat("---|", len(columns)) + "\n")
		for _, f := range fam.faults {
			fmt.Fprintf(&b, "| F%d |", f.number)
			in := f.befalls()
			for _, c := range columns {
				n := len(tests[place{f.number, c.key}])
				switch {
				case n > 0:
					fmt.Fprintf(&b, " %d |", n)
				case slices.Contains(in, c.key):
					b.WriteString(" * |")
				default:
					b.WriteString(" – |")
				}
			}
			b.WriteString("\n")
		}
		for _, f := range fam.faults {
			writeFault(&b, f, tests)
		}
	}
	return []byte(b.String())
}

func writeFault(b *strings.Builder, f fault, tests map[place][]string) {
	fmt.Fprintf(b, "\n### F%d\n\n%s\n\n", f.number, f.what)
	if f.elsewhere != "" {
		fmt.Fprintf(b, "Elsewhere: %s\n\n", f.elsewhere)
	}
	b.WriteString("| | |\n|---|---|\n")
	in := f.befalls()
	for _, c := range columns {
		if !slices.Contains(in, c.key) {
			continue
		}
		cell := f.untested[c.key]
		if names := tests[place{f.number, c.key}]; len(names) > 0 {
			cell = "`" + strings.Join(names, "` `") + "`"
		} else if cell == "" {
			cell = "**no test and no reason**"
		}
		fmt.Fprintf(b, "| %s | %s |\n", c.title, cell)
	}
}

// missing says what is wrong between the list and the tests.
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
