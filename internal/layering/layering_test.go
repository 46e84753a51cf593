package layering

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestThisModule runs every rule on the module that this package is part of.
func TestThisModule(t *testing.T) {
	tree, err := Read(os.DirFS("../.."))
	if err != nil {
		t.Fatal(err)
	}
	if len(tree.Packages) < 2 || tree.Package("driver") == nil {
		t.Fatalf("read %d packages of %q: this is not the module", len(tree.Packages), tree.Module)
	}
	for _, rule := range Rules() {
		t.Run(rule.Name, func(t *testing.T) {
			if bad := rule.Check(tree); len(bad) > 0 {
				t.Errorf("broken in %d places:\n\t%s\nwhy: %s", len(bad), strings.Join(bad, "\n\t"), rule.Reason)
			}
		})
	}
}

// sound is a small module that breaks no rule.
var sound = map[string]string{
	"go.mod":                            "module example.org/m\n\ngo 1.26\n\nrequire go.uber.org/goleak v1.3.0\n",
	"go.work":                           "go 1.26\n\nuse (\n\t.\n\t./redislock\n\t./cmd/holdfast\n)\n",
	"redislock/go.mod":                  "module example.org/m/redislock\n\nrequire (\n\texample.org/m v0.0.0\n\tgithub.com/redis/rueidis v1.0.0\n\tgolang.org/x/y v1.0.0 // indirect\n)\n",
	"cmd/holdfast/go.mod":               "module example.org/m/cmd/holdfast\n\nrequire (\n\texample.org/m v0.0.0\n\texample.org/m/redislock v0.0.0 // indirect\n\tgithub.com/redis/rueidis v1.0.0 // indirect\n)\n",
	"root.go":                           "// Package m is the core.\npackage m\n\nimport (\n\t_ \"context\"\n\t_ \"example.org/m/driver\"\n)\n",
	"root_test.go":                      "package m\n\nimport (\n\t_ \"example.org/m/drivertest\"\n\t_ \"go.uber.org/goleak\"\n\t_ \"os\"\n\t_ \"testing\"\n)\n\nfunc Example() {}\nfunc init() {}\n",
	"driver/driver.go":                  "// Package driver is the seam.\npackage driver\n\n// Keep is documented.\nfunc Keep() {}\n\nfunc quiet() {}\n",
	"driver/driver_test.go":             "package driver\n\nfunc ExampleKeep() {}\n",
	"drivertest/suite.go":               "// Package drivertest is the suite.\npackage drivertest\n\nimport _ \"testing\"\n",
	"drivertest/suite_test.go":          "package drivertest\n\nfunc Example() {}\n",
	"internal/testkit/faults/faults.go": "// Package faults has plans.\npackage faults\n\nimport _ \"testing\"\n",
	"redislock/redis.go":                "// Package redislock is a store.\npackage redislock\n\nimport (\n\t_ \"example.org/m/driver\"\n\t_ \"github.com/redis/rueidis\"\n\t_ \"github.com/redis/rueidis/internal/x\"\n)\n",
	"redislock/redis_test.go":           "package redislock\n\nimport _ \"example.org/m\"\n\nfunc Example() {}\n",
	"redlock/redlock.go":                "// Package redlock is a store.\npackage redlock\n\nimport _ \"example.org/m/driver\"\n",
	"redlock/redlock_test.go":           "package redlock_test\n\nfunc Example() {}\n",
	"anylock/any.go":                    "// Package anylock opens stores.\npackage anylock\n\nimport _ \"example.org/m/redislock\"\n",
	"anylock/any_test.go":               "package anylock\n\nfunc Example() {}\n",
	"internal/cli/cli.go":               "// Package cli is the command.\npackage cli\n\nimport (\n\t_ \"example.org/m/anylock\"\n\t\"os\"\n)\n\n// Home reads the environment.\nfunc Home() { os.Getenv(\"HOME\") }\n",
	"cmd/holdfast/main.go":              "// Command holdfast holds locks.\npackage main\n\nimport _ \"example.org/m/internal/cli\"\n\nfunc main() {}\n",
	"examples/stock/main.go":            "// Command stock sells.\npackage main\n\nimport (\n\t_ \"example.org/m/anylock\"\n\t_ \"example.org/m/driver\"\n)\n\nfunc main() {}\n",
	"internal/testkit/servers/s.go":     "// Package servers starts servers.\npackage servers\n\nimport \"os\"\n\nvar ci = os.Getenv(\"CI\")\n",
	"bench/go.mod":                      "module example.org/m/bench\n",
	"bench/util/init.go":                "package util\n\nfunc init() {}\n",
	"driver/testdata/util/bad.go":       "package util\n",
	"docs/cli.md":                       "Run `cd /srv/holdfast/home/x`, see https://example.org/home/index.\n[a](../driver) [b](../driver/driver.go#L1) [c](#top) [d](https://example.org/x) ![e](../picture.png)\n",
	"picture.png":                       "\x89PNG\x00 /roo" + "t/x",
}

func read(t *testing.T, change map[string]string) *Tree {
	t.Helper()
	fsys := fstest.MapFS{}
	both := maps.Clone(sound)
	maps.Copy(both, change)
	for name, data := range both {
		fsys[name] = &fstest.MapFile{Data: []byte(data)}
	}
	tree, err := Read(fsys)
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

func TestSoundModuleBreaksNothing(t *testing.T) {
	tree := read(t, nil)
	for _, rule := range Rules() {
		if bad := rule.Check(tree); len(bad) > 0 {
			t.Errorf("%s: %q", rule.Name, bad)
		}
	}
	if got := len(tree.Packages); got != 11 {
		t.Errorf("read %d packages, want 11: nested modules and testdata are none", got)
	}
}

func TestOutputOfBuildsIsLeftOut(t *testing.T) {
	tree := read(t, map[string]string{
		".gitignore":               "# builds\n/bin/\n/holdfast\n*.out\ntarget/\n",
		"bin/a.go":                 "no Go",
		"holdfast":                 "a",
		"x/y.out":                  "a",
		"clients/java/target/a/b":  "a",
		"x/bin/kept.md":            "a",
		"x/holdfast/kept.md":       "a",
		"x/target":                 "a",
		"clients/java/targets/x.y": "a",
	})
	want := []string{"clients/java/targets/x.y", "x/bin/kept.md", "x/holdfast/kept.md", "x/target"}
	got := slices.DeleteFunc(slices.Clone(tree.Names), func(name string) bool {
		_, known := sound[name]
		return known || name == ".gitignore"
	})
	if slices.Sort(got); !slices.Equal(got, want) {
		t.Errorf("read %q besides the sound module, want %q", got, want)
	}
}

func TestPatternsOfIgnoredFilesAreSimple(t *testing.T) {
	for _, pattern := range []string{"!kept", "a/b", "/a/**", "[", "/"} {
		fsys := fstest.MapFS{"go.mod": {Data: []byte("module m\n")}, ".gitignore": {Data: []byte(pattern + "\n")}}
		if _, err := Read(fsys); err == nil || !strings.Contains(err.Error(), strconv.Quote(pattern)) {
			t.Errorf("%s: %v", pattern, err)
		}
	}
}

// breaches are changes to the sound module; each breaks the rule named, at the
// place named.
var breaches = []struct {
	rule, file, data, want string
}{
	{"imports", "a.go", "package m\n\nimport _ \"example.org/m/redislock\"\n", "package . imports redislock"},
	{"imports", "a.go", "package m\n\nimport _ \"golang.org/x/sys/unix\"\n", "package . imports golang.org/x/sys/unix"},
	{"imports", "a.go", "package m\n\nimport _ \"example.org/m/fmt\"\n", "package . imports fmt"},
	{"imports", "driver/a.go", "package driver\n\nimport _ \"example.org/m\"\n", "package driver imports ."},
	{"imports", "driver/a.go", "package driver\n\nimport _ \"github.com/google/uuid\"\n", "package driver imports github.com/google/uuid"},
	{"imports", "redislock/a.go", "package redislock\n\nimport _ \"example.org/m\"\n", "package redislock imports ."},
	{"imports", "redislock/a_windows.go", "package redislock\n\nimport _ \"github.com/redis/rueidisx\"\n", "package redislock imports github.com/redis/rueidisx"},
	{"imports", "internal/cli/a.go", "package cli\n\nimport _ \"example.org/m/redislock\"\n", "package internal/cli imports redislock"},
	{"imports", "cmd/holdfast/a.go", "package main\n\nimport _ \"example.org/m/anylock\"\n", "package cmd/holdfast imports anylock"},
	{"imports", "novel/a.go", "// Package novel is new.\npackage novel\n", "package novel has no row"},
	{"stores apart", "redislock/a.go", "package redislock\n\nimport _ \"example.org/m/redlock\"\n", "redislock → redlock"},
	{"stores apart", "redislock/a.go", "package redislock\n\nimport _ \"example.org/m\"\n", "redislock → ."},
	{"stores apart", "driver/a.go", "package driver\n\nimport _ \"example.org/m/anylock\"\n", "redislock → driver → anylock"},
	{"test code", "a.go", "package m\n\nimport _ \"example.org/m/drivertest\"\n", ". → drivertest"},
	{"test code", "driver/a.go", "package driver\n\nimport _ \"example.org/m/internal/testkit/servers\"\n", ". → driver → internal/testkit/servers"},
	{"test code", "a.go", "package m\n\nimport _ \"example.org/m/internal/testkit/faults\"\n", ". → internal/testkit/faults"},
	{"test code", "anylock/a.go", "package anylock\n\nimport _ \"testing/fstest\"\n", "anylock → testing/fstest"},
	{"decisions", "queue.go", "package m\n\nimport _ \"context\"\n", "queue.go imports context"},
	{"decisions", "redislock/internal/wire/a.go", "// Package wire is.\npackage wire\n\nimport _ \"sync\"\n", "redislock/internal/wire/a.go imports sync"},
	{"no cgo", "redislock/a.go", "package redislock\n\nimport \"C\"\n", "package redislock"},
	{"length of clients", "clients/sh/holdfast.sh", strings.Repeat("# a\n\n", 151), "clients/sh/holdfast.sh has 302 lines"},
	{"length of clients", "clients/java/src/main/java/io/github/holdfastgo/Locks.java", strings.Repeat("// a\n\n", 151), "clients/java/src/main/java/io/github/holdfastgo/Locks.java has 302 lines"},
	{"length of clients", "clients/node/holdfast.d.ts", "a;" + strings.Repeat(" ", 100) + "\n", "clients/node/holdfast.d.ts:1 has 102 characters"},
	{"length of clients", "clients/python/holdfast/more.py", "a = 1\n", "clients/python/holdfast/more.py is no file of clientFiles"},
	{"names", "redislock/util/a.go", "// Package text is.\npackage text\n", "package redislock/util (text)"},
	{"names", "redislock/text/a.go", "// Package helpers is.\npackage helpers\n", "package redislock/text (helpers)"},
	{"no init", "driver/a.go", "package driver\n\nfunc init() {}\n", "driver/a.go:3"},
	{"no init", "cmd/holdfast/a.go", "package main\n\nfunc init() {}\n", "cmd/holdfast/a.go:3"},
	{"no environment", "driver/a.go", "package driver\n\nimport \"os\"\n\nvar _ = os.Getenv(\"X\")\n", "driver/a.go:5: os.Getenv"},
	{"no environment", "anylock/a.go", "package anylock\n\nimport sys \"os\"\n\nvar _, _ = sys.LookupEnv(\"X\")\n", "anylock/a.go:5: os.LookupEnv"},
	{"no environment", "anylock/a.go", "package anylock\n\nimport . \"os\"\n\nvar _ = Getenv(\"X\")\n", "anylock/a.go:3: dot import"},
	{"length", "driver/a.go", "package driver\n" + strings.Repeat("\n", MaxLines), fmt.Sprintf("driver/a.go has %d lines", MaxLines+1)},
	{"methods", "driver/a.go", "package driver\n\ntype t struct{}\n" + strings.Repeat("\nfunc (*t) m() {}\n", MaxMethods+1), fmt.Sprintf("driver.t has %d methods", MaxMethods+1)},
	{"package comments", "driver/driver.go", "package driver\n", "package driver"},
	{"package comments", "cmd/holdfast/main.go", "package main\n\nimport _ \"example.org/m/internal/cli\"\n\nfunc main() {}\n", "package cmd/holdfast"},
	{"package comments", "internal/only/a_test.go", "package only\n", "package internal/only"},
	{"examples", "driver/driver_test.go", "package driver\n\nfunc TestX() {}\n", "package driver"},
	{"examples", "anylock/any_test.go", "package anylock\n\nfunc (x T) Example() {}\n", "package anylock"},
	{"doc comments", "driver/a.go", "package driver\n\nfunc Bare() {}\n", "driver/a.go:3: Bare"},
	{"doc comments", "driver/a.go", "package driver\n\ntype Bare struct{}\n", "driver/a.go:3: Bare"},
	{"doc comments", "driver/a.go", "package driver\n\n// Some types.\ntype (\n\tBare int\n)\n", "driver/a.go:5: Bare"},
	{"doc comments", "driver/a.go", "package driver\n\n// T is.\ntype T[K any] int\n\nfunc (t *T[K]) Bare() {}\n", "driver/a.go:6: T.Bare"},
	{"doc comments", "driver/a.go", "package driver\n\n// T is.\ntype T interface {\n\t// Said is.\n\tSaid()\n\tBare()\n}\n", "driver/a.go:7: T.Bare"},
	{"doc comments", "driver/a.go", "package driver\n\nconst A, Bare = 1, 2\n", "driver/a.go:3: Bare"},
	{"doc comments", "internal/cli/a.go", "package cli\n\nvar (\n\t// A is.\n\tA int\n\tBare int\n)\n", "internal/cli/a.go:6: Bare"},
	{"no machine's paths", "docs/a.md", "first\nlook at /roo" + "t/go/pkg\n", "docs/a.md:2"},
	{"no machine's paths", "scripts/x", "cd /home" + "/me/src\n", "scripts/x:1"},
	{"no machine's paths", "driver/a.go", "package driver\n\nvar dir = \"/User" + "s/me/src\"\n", "driver/a.go:3"},
	{"no machine's paths", "bench/a.md", "`/wor" + "k/main`", "bench/a.md:1"},
	{"go.mod", "redislock/go.mod", "module example.org/m/redislock\n\nrequire github.com/redis/rueidis v1.0.0 // indirect\n", "github.com/redis/rueidis: imported is true"},
	{"go.mod", "redislock/go.mod", "module example.org/m/redislock\n\nrequire (\n\tgolang.org/x/y v1.0.0\n)\n", "golang.org/x/y: imported is false"},
	{"go.mod", "cmd/holdfast/go.mod", "module example.org/m/cmd/holdfast\n\nrequire example.org/m v0.0.0 // indirect\n", "example.org/m: imported is true"},
	{"modules", "go.mod", "module example.org/m\n\nrequire golang.org/x/y v1.0.0\n", "go.mod requires golang.org/x/y"},
	{"modules", "redislock/go.mod", "module example.org/m/redislock\n\nrequire github.com/jackc/pgx/v5 v5.0.0 // indirect\n", "redislock/go.mod requires github.com/jackc/pgx/v5"},
	{"modules", "cmd/holdfast/go.mod", "module example.org/m/cmd/holdfast\n\nrequire github.com/redis/rueidis v1.0.0 // indirect\n", "cmd/holdfast/go.mod requires github.com/redis/rueidis"},
	{"links", "README.md", "[a](driver)\n[b](docs/none.md)\n", "README.md:2: docs/none.md"},
	{"links", "docs/a.md", "see [a](driver/driver.go)\n", "docs/a.md:1: driver/driver.go"},
	{"page text", "lockserver/internal/page/page.js", "let e;\ne.innerHTML = name;\n", "lockserver/internal/page/page.js:2: innerHTML"},
	{"no leftovers", "driver/a_test.go", "package driver\n\n// TO" + "DO: think\n", "driver/a_test.go:3"},
}

func TestRulesCanFail(t *testing.T) {
	var proven []string
	for _, b := range breaches {
		t.Run(b.rule+" "+b.want, func(t *testing.T) {
			tree := read(t, map[string]string{b.file: b.data})
			i := slices.IndexFunc(Rules(), func(r Rule) bool { return r.Name == b.rule })
			if i < 0 {
				t.Fatal("there is no such rule")
			}
			bad := Rules()[i].Check(tree)
			if !slices.ContainsFunc(bad, func(s string) bool { return strings.Contains(s, b.want) }) {
				t.Errorf("found %q, want one with %q", bad, b.want)
			}
		})
		proven = append(proven, b.rule)
	}
	for _, rule := range Rules() {
		if !slices.Contains(proven, rule.Name) {
			t.Errorf("no change to the sound module breaks the rule %q", rule.Name)
		}
		if rule.Reason == "" {
			t.Errorf("the rule %q has no reason", rule.Name)
		}
	}
}

func TestExactPlaces(t *testing.T) {
	// One breach is one finding: code with a comment, unexported code and tests
	// are none.
	tree := read(t, map[string]string{"driver/a.go": `package driver

// Of a group.
const (
	A = iota
	B
)

var C int // said beside

type hidden struct{}

func (hidden) Method() {}

// Open is.
type Open interface {
	quiet()
	// Said is.
	Said()
}

// Mirror is spoken for as a whole.
type Mirror interface {
	Helper()
	Name() string
}

func Bare() {}
`})
	if bad := checkExportedDocs(tree); len(bad) != 1 || !strings.HasSuffix(bad[0], ": Bare") {
		t.Errorf("found %q, want Bare alone", bad)
	}
}

func TestRows(t *testing.T) {
	seen := map[string]bool{}
	for _, r := range rows {
		if seen[r.Package] {
			t.Errorf("two rows for %s", r.Package)
		}
		seen[r.Package] = true
		if r.Reason == "" {
			t.Errorf("the row of %s has no reason", r.Package)
		}
	}
	for s := range strings.FieldsSeq(stores) {
		if !seen[s] {
			t.Errorf("the store %s has no row", s)
		}
	}
}

func TestReadRefusesBrokenSource(t *testing.T) {
	fsys := fstest.MapFS{
		"go.mod": {Data: []byte("module example.org/m\n")},
		"a.go":   {Data: []byte("package m\n\nfunc {\n")},
	}
	if _, err := Read(fsys); err == nil || !strings.Contains(err.Error(), "a.go:3") {
		t.Errorf("got %v, want a syntax error in a.go:3", err)
	}
	if _, err := Read(fstest.MapFS{}); err == nil {
		t.Error("a folder without go.mod was read as a module")
	}
}
