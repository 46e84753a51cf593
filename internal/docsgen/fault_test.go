package main

import (
	"os"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/holdfast-go/holdfast/driver"
)

// TestEveryFaultIsTested checks that each fault has a test on each column that
// it concerns, or a reason.
func TestEveryFaultIsTested(t *testing.T) {
	tests, err := catalogued(os.DirFS("../.."), families)
	if err != nil {
		t.Fatal(err)
	}
	for _, bad := range missing(families, tests) {
		t.Error(bad)
	}
	last := families[len(families)-1].faults
	if n := last[len(last)-1].number; n != 136 {
		t.Errorf("the last fault is F%d", n)
	}
}

// TestSuitesRunWhatTheyName checks that the tests by which stores run the suite
// exist.
func TestSuitesRunWhatTheyName(t *testing.T) {
	fsys := os.DirFS("../..")
	cases, err := suiteCases(fsys)
	if err != nil {
		t.Fatal(err)
	}
	for kind, least := range map[string]int{"drivertest": 60, "locks": 15, "multiproc": 5} {
		if n := len(cases[kind]); n < least {
			t.Errorf("%d cases of %s were found", n, kind)
		}
	}
	for _, s := range suites {
		pkg, test, _ := strings.Cut(s.test, ".")
		test, _, _ = strings.Cut(test, "/")
		found := false
		files, err := os.ReadDir("../../" + pkg)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			if !strings.HasSuffix(f.Name(), "_test.go") {
				continue
			}
			data, err := os.ReadFile("../../" + pkg + "/" + f.Name())
			if err != nil {
				t.Fatal(err)
			}
			found = found || strings.Contains(string(data), "func "+test+"(t *testing.T)")
		}
		if !found {
			t.Errorf("there is no test %s", s.test)
		}
		for _, name := range strings.Fields(s.leavesOut) {
			if !slices.ContainsFunc(cases[s.kind], func(c suiteCase) bool { return c.name == name }) {
				t.Errorf("%s leaves out %q, which is no case", s.test, name)
			}
		}
	}
}

// TestMissingFindsEachFlaw checks that missing finds each kind of mismatch
// between the list and the tests.
func TestMissingFindsEachFlaw(t *testing.T) {
	all := groups["stores"]
	good := []family{{title: "A", faults: []fault{{number: 1, what: "x", on: "core", elsewhere: "y"}, {number: 2, what: "x", on: "core stores"}}}}
	tests := map[place][]string{{1, "core"}: {"p.T"}, {2, "core"}: {"p.T"}}
	for _, key := range strings.Fields(all) {
		tests[place{2, key}] = []string{"p.T"}
	}
	if bad := missing(good, tests); bad != nil {
		t.Errorf("nothing is wrong, and yet %q", bad)
	}
	for want, change := range map[string]func(f []fault, tests map[place][]string){
		"F1 on core has neither a test nor a reason": func(_ []fault, tests map[place][]string) { delete(tests, place{1, "core"}) },
		"F1 on core has a test, p.T, and a reason":   func(f []fault, _ map[place][]string) { f[0].untested = map[string]string{"core": "no"} },
		"F1 gives a reason for \"etcd\"":             func(f []fault, _ map[place][]string) { f[0].untested = map[string]string{"etcd": "no"} },
		"nothing says why it cannot befall etcd":     func(f []fault, _ map[place][]string) { f[0].elsewhere = "" },
		"F3 stands where F2 should":                  func(f []fault, _ map[place][]string) { f[1].number = 3 },
		"F1 befalls \"moon\", which is no column":    func(f []fault, _ map[place][]string) { f[0].on = "core moon" },
		"p.U covers F1 on etcd, which the list says": func(_ []fault, tests map[place][]string) { tests[place{1, "etcd"}] = []string{"p.U"} },
		"F1 says nothing":                            func(f []fault, _ map[place][]string) { f[0].what = "" },
	} {
		faults := slices.Clone(good[0].faults)
		found := map[place][]string{}
		for at, names := range tests {
			found[at] = names
		}
		change(faults, found)
		if bad := missing([]family{{title: "A", faults: faults}}, found); !slices.ContainsFunc(bad, func(s string) bool { return strings.Contains(s, want) }) {
			t.Errorf("%q is not among %q", want, bad)
		}
	}
}

// TestCatalogued gives catalogued sources made for this test.
func TestCatalogued(t *testing.T) {
	source := func(s string) *fstest.MapFile { return &fstest.MapFile{Data: []byte("package p\n" + s)} }
	fsys := fstest.MapFS{
		"core_test.go": source("func TestF1_One(t *testing.T) {}\n// Two does.\n//\n// Covers: F2,\n// F3.\nfunc TestTwo(t *testing.T) {}\nfunc TestF5_F6_Both(t *testing.T) {}\n"),
		"redislock/a_test.go": source("func TestF1_ClusterOne(t *testing.T) {}\n// Covers: F2 on redis, sentinel.\nfunc TestF2_Two(t *testing.T) {}\n" +
			"func (x T) TestF3_Method() {}\nfunc helper() {}\n"),
		"tests/sqlqueue/a_test.go":          source("func TestF4_Lines(t *testing.T) {}\n"),
		"drivertest/cases_x.go":             source("var x = []Case{{Name: \"join-x\", Rules: \"Join 1, F1, F9\"}, {Name: \"fair-x\", Rules: \"F2\", Needs: Fair | StepClock}}\n"),
		"internal/testkit/multiproc/run.go": source("func Run() { for range map[string]func(){\"killed one\": killedOne} {} }\n\n// killedOne dies (F2).\nfunc killedOne() {}\n"),
		"drivertest/locks_x.go":             source("var x = []lockCase{{name: \"a b\", about: \"c (F1)\", needs: shared}}\n"),
		"drivertest/locks_odd_test.go":      source("func TestOdd(t *testing.T) {}\n"),
	}
	fams := []family{{title: "A", faults: []fault{{number: 1, what: "x", on: "memory redlock"}, {number: 2, what: "x", on: "memory etcd"}}}}
	old := suites
	defer func() { suites = old }()
	suites = []suite{
		{"memory", "drivertest", "memlock.TestC", driver.Traits{Fair: true, Shared: true}, "StepClock", ""},
		{"memory", "locks", "memlock.TestL", driver.Traits{Fair: true, Shared: true}, "", ""},
		{"redlock", "drivertest", "redlock.TestC", driver.Traits{}, "StepClock", "join-x"},
		{"redlock", "locks", "redlock.TestL", driver.Traits{}, "", ""},
		{"etcd", "multiproc", "etcdlock.TestP", driver.Traits{}, "", ""},
		{"etcd", "drivertest", "etcdlock.TestC", driver.Traits{Fair: true}, "", ""},
	}
	got, err := catalogued(fsys, fams)
	if err != nil {
		t.Fatal(err)
	}
	want := map[place]string{
		{1, "core"}: "holdfast.TestF1_One", {2, "core"}: "holdfast.TestTwo", {3, "core"}: "holdfast.TestTwo",
		{5, "core"}: "holdfast.TestF5_F6_Both", {6, "core"}: "holdfast.TestF5_F6_Both",
		{1, "cluster"}: "redislock.TestF1_ClusterOne", {2, "redis"}: "redislock.TestF2_Two", {2, "sentinel"}: "redislock.TestF2_Two",
		{4, "sqlite"}: "tests/sqlqueue.TestF4_Lines", {4, "postgres"}: "tests/sqlqueue.TestF4_Lines", {4, "mysql"}: "tests/sqlqueue.TestF4_Lines",
		{1, "memory"}: "memlock.TestC/join-x memlock.TestL/a_b", {2, "memory"}: "memlock.TestC/fair-x",
		{2, "etcd"}: "etcdlock.TestP/killed_one",
	}
	for at, names := range want {
		if s := strings.Join(got[at], " "); s != names {
			t.Errorf("F%d on %s: %q, want %q", at.fault, at.column, s, names)
		}
	}
	for at, names := range got {
		if want[at] == "" {
			t.Errorf("F%d on %s: %q", at.fault, at.column, names)
		}
	}
	for text, says := range map[string]string{
		"func TestF1One(t *testing.T) {}":                           "TestF1One: say TestF27_Name",
		"// Covers: F1 and F2\nfunc TestX(t *testing.T) {}":         "cannot read what it covers",
		"// Covers: F1 on the moon\nfunc TestF1_X(t *testing.T) {}": "cannot read what it covers",
	} {
		if _, err := catalogued(fstest.MapFS{"a_test.go": source(text)}, nil); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// TestFaultPageShowsSentencesAndReasons checks the rows of the page, and that
// each reason is there once with all its faults.
func TestFaultPageShowsSentencesAndReasons(t *testing.T) {
	fams := []family{{title: "A", elsewhere: "Only here.", faults: []fault{
		{number: 1, what: "A request is lost.", on: "core memory"},
		{number: 2, what: "A clock stops.", on: "core redis cluster", elsewhere: "there is no clock.", untested: map[string]string{"redis": "not tried.", "cluster": "not tried."}},
	}}, {title: "B", faults: []fault{{number: 3, what: "A file is damaged.", on: "sqlite", elsewhere: "there is no clock."}}}}
	page := string(writeFaults(fams, map[place][]string{{1, "core"}: {"p.TestA", "p.TestB"}, {1, "memory"}: {"p.TestC"}}))
	for _, want := range []string{
		"\n## A\n\nOnly here.\n\n| | | core | command |",
		"\n| F1 | A request is lost. | 2 | – | – | 1 | – |",
		"\n| F2 | A clock stops. | * | – | – | – | – | * | – | * | – |",
		"\n- F2, F3: there is no clock.\n",
		"\n- F2 on Redis, Cluster: not tried.\n",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q:\n%s", want, page)
		}
	}
}

// TestListOfTestsNamesWhatThePageCounts checks that the list for testlog has a
// line for each cell of the page with a number.
func TestListOfTestsNamesWhatThePageCounts(t *testing.T) {
	fsys := os.DirFS("../..")
	list, err := faultTests(fsys)
	if err != nil {
		t.Fatal(err)
	}
	tests, err := catalogued(fsys, families)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(list), "\n"); n != len(tests) {
		t.Errorf("the list has %d lines, and %d cells have tests", n, len(tests))
	}
	if !strings.HasPrefix(string(list), "F1 core drivertest.TestCoreUnderFaults ") {
		t.Errorf("the list begins with %.80q", list)
	}
}
