package main

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
	"github.com/spf13/cobra"
)

func TestMain(m *testing.M) { servers.Main(m) }

// TestDocumentationIsCurrent checks the generated files, as a step of CI does
// too.
func TestDocumentationIsCurrent(t *testing.T) {
	if err := run("../..", true); err != nil {
		t.Error(err)
	}
}

// TestOutputIsTheSameEverywhere checks that the output does not depend on the
// user who generates it.
func TestOutputIsTheSameEverywhere(t *testing.T) {
	first, err := generate(os.DirFS("../.."))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME", "HOLDFAST_STORE", "USER", "HOSTNAME"} {
		t.Setenv(name, "/elsewhere")
	}
	second, err := generate(os.DirFS("../.."))
	if err != nil {
		t.Fatal(err)
	}
	for name := range first {
		if !bytes.Equal(first[name], second[name]) {
			t.Errorf("%s changes with the environment, at line %d", name, firstDifference(first[name], second[name]))
		}
	}
}

// traitsMethod matches the Traits method of an exported driver.
var traitsMethod = regexp.MustCompile(`(?m)^func \(\w+ \*[A-Z]\w*\) Traits\(\) driver\.Traits`)

// TestEveryStoreHasAColumn compares the table with the existing packages.
func TestEveryStoreHasAColumn(t *testing.T) {
	schemes := map[string]bool{}
	for _, s := range stores {
		if s.traits.Scheme == "" || s.traits.MinTTL <= 0 || s.traits.MaxTTL < s.traits.MinTTL {
			t.Errorf("%s: traits are not filled in: %+v", s.name, s.traits)
		}
		if schemes[s.traits.Scheme] {
			t.Errorf("%s: two stores have the scheme %q", s.name, s.traits.Scheme)
		}
		schemes[s.traits.Scheme] = true
	}
	files, err := filepath.Glob("../../*lock/*.go")
	if err != nil {
		t.Fatal(err)
	}
	drivers := 0
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		drivers += len(traitsMethod.FindAll(data, -1))
	}
	if drivers != len(stores) {
		t.Errorf("the table has %d stores, the module has %d", len(stores), drivers)
	}
}

func TestReplace(t *testing.T) {
	kinds := map[string]kind{"greeting": func(arg string) (string, error) { return "hello " + arg + "\n", nil }}
	for _, c := range []struct{ name, in, out, err string }{
		{"filled", "a\n<!-- generated:greeting you -->\nold\n\nolder\n<!-- /generated -->\nb", "a\n<!-- generated:greeting you -->\nhello you\n<!-- /generated -->\nb", ""},
		{"empty", "<!-- generated:greeting x -->\n<!-- /generated -->\n", "<!-- generated:greeting x -->\nhello x\n<!-- /generated -->\n", ""},
		{"fenced", "```\n<!-- generated:greeting x -->\n```\n", "```\n<!-- generated:greeting x -->\n```\n", ""},
		{"no block", "a\r\nb\n", "a\r\nb\n", ""},
		{"unknown", "<!-- generated:novel -->\n<!-- /generated -->\n", "", `line 1: there is no block "novel"`},
		{"open", "a\n<!-- generated:greeting x -->\nold\n", "", "line 2: block is not closed"},
		{"nested", "<!-- generated:greeting x -->\n<!-- generated:greeting y -->\n", "", "line 2: block opened at line 1 is not closed"},
		{"stray", "a\n<!-- /generated -->\n", "", "line 2: stray"},
		{"malformed", "<!-- generated: greeting -->\n", "", "line 1: stray or malformed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			out, _, err := replace([]byte(c.in), kinds)
			switch {
			case c.err != "":
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Errorf("got %v, want %q", err, c.err)
				}
			case err != nil:
				t.Error(err)
			case string(out) != c.out:
				t.Errorf("got %q, want %q", out, c.out)
			}
		})
	}
}

func TestTraitsTable(t *testing.T) {
	got := traitsTable([]store{
		{"A", driver.Traits{Scheme: "a", Fencing: true, Push: true, PushLocal: true, MinTTL: time.Second, MaxTTL: 30 * 24 * time.Hour, Granularity: 1500 * time.Microsecond}},
		{"B", driver.Traits{Scheme: "b", Shared: true, Push: true, MinTTL: time.Millisecond, MaxTTL: 2 * 365 * 24 * time.Hour}},
	})
	for _, row := range []string{
		"|  | A | B |\n|---|---|---|\n",
		"| URL | `a:` | `b:` |\n",
		"| fencing tokens | yes | no |\n",
		"| read/write locks, semaphores | no | yes |\n",
		"| a release wakes the next waiter | same machine | yes |\n",
		"| shortest TTL | 1 s | 1 ms |\n",
		"| longest TTL | 30 days | 2 years |\n",
		"| expiry is late by at most | 1.5 ms | 0 |\n",
	} {
		if !strings.Contains(got, row) {
			t.Errorf("the table lacks %q", row)
		}
	}
	if t.Failed() {
		t.Log(got)
	}
}

// TestEveryTraitIsARow flips each trait and checks that the table changes.
func TestEveryTraitIsARow(t *testing.T) {
	base := traitsTable([]store{{"A", driver.Traits{}}})
	for name, flip := range map[string]func(*driver.Traits){
		"Scheme":           func(t *driver.Traits) { t.Scheme = "x" },
		"Fencing":          func(t *driver.Traits) { t.Fencing = true },
		"Shared":           func(t *driver.Traits) { t.Shared = true },
		"Owner":            func(t *driver.Traits) { t.Owner = true },
		"Fair":             func(t *driver.Traits) { t.Fair = true },
		"Push":             func(t *driver.Traits) { t.Push = true },
		"PushLocal":        func(t *driver.Traits) { t.PushLocal = true },
		"Marks":            func(t *driver.Traits) { t.Marks = true },
		"SurvivesRestart":  func(t *driver.Traits) { t.SurvivesRestart = true },
		"SurvivesFailover": func(t *driver.Traits) { t.SurvivesFailover = true },
		"MinTTL":           func(t *driver.Traits) { t.MinTTL = time.Hour },
		"MaxTTL":           func(t *driver.Traits) { t.MaxTTL = time.Hour },
		"Granularity":      func(t *driver.Traits) { t.Granularity = time.Hour },
	} {
		var traits driver.Traits
		flip(&traits)
		if traitsTable([]store{{"A", traits}}) == base {
			t.Errorf("the table does not show %s", name)
		}
	}
}

func TestCommandReference(t *testing.T) {
	root := &cobra.Command{Use: "tool", Short: "Does things.", Long: "Does <many> things.\n\n   like this\n  and\n\nStatus:\n  0  well\nand *so* on.\n"}
	root.PersistentFlags().String("store", "", "where")
	verb := &cobra.Command{
		Use: "run NAME", Short: "Runs.", Example: "  tool run a\n    deeper", Run: func(*cobra.Command, []string) {},
	}
	verb.Flags().Bool("fast", false, "at once")
	root.AddCommand(verb, &cobra.Command{Use: "secret", Hidden: true, Run: func(*cobra.Command, []string) {}})
	got := string(commandReference(root))
	for _, want := range []string{
		"# tool\n\nDoes \\<many> things.\n\n```\n like this\nand\n```\n\nStatus:\n\n```\n0  well\n```\n\nand \\*so\\* on.\n\n",
		"Flags of this and every command below:\n\n```\n      --store string   where\n```\n",
		"## tool run\n\nRuns.\n\n```\ntool run NAME [flags]\n```\n\nExamples:\n\n```\ntool run a\n  deeper\n```\n",
		"      --fast   at once\n",
		"## tool completion\n",
		"```\ntool completion bash\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("lacks %q", want)
		}
	}
	if strings.Contains(got, "secret") {
		t.Error("shows a hidden command")
	}
	if t.Failed() {
		t.Log(got)
	}
}

// recording returns the record of the picture, which no test changes.
func recording() []byte {
	data, err := os.ReadFile(filepath.Join("../..", recorded))
	if err != nil {
		panic(err)
	}
	return data
}

// module is the smallest tree that generate accepts.
var module = fstest.MapFS{
	"README.md":            {Data: []byte("<!-- generated:traits -->\n<!-- /generated -->\n<!-- generated:code examples/a/main.go -->\n<!-- /generated -->\n")},
	"docs/guarantees.md":   {Data: []byte("<!-- generated:traits -->\n<!-- /generated -->\n")},
	recorded:               {Data: recording()},
	"docs/stores/other.md": {Data: []byte("text\n")},
	"examples/a/main.go":   {Data: []byte("// Command a shows.\npackage main\n\nfunc main() {}\n")},
}

func TestGenerate(t *testing.T) {
	files, err := generate(module)
	if err != nil {
		t.Fatal(err)
	}
	if got := slices.Sorted(maps.Keys(files)); !slices.Equal(got, []string{"README.md", "docs/cli.md", "docs/faults.md", "docs/guarantees.md", "docs/handover.svg", "docs/stores/other.md", "docs/timeline.svg"}) {
		t.Errorf("made %q", got)
	}
	if s := string(files["README.md"]); !strings.Contains(s, "-->\n```go\npackage main\n\nfunc main() {}\n```\n<!--") || !strings.Contains(s, "| fencing tokens |") {
		t.Errorf("README.md: %s", s)
	}
	for name, change := range map[string]func(fstest.MapFS){
		"docs/guarantees.md lacks the block generated:traits": func(m fstest.MapFS) { m["docs/guarantees.md"] = m["docs/stores/other.md"] },
		"docs/handover.json: 0 terminals":                     func(m fstest.MapFS) { m[recorded] = &fstest.MapFile{Data: []byte("{}")} },
		"docs/guarantees.md is missing":                       func(m fstest.MapFS) { delete(m, "docs/guarantees.md") },
		"README.md: line 3: open examples/a/main.go":          func(m fstest.MapFS) { delete(m, "examples/a/main.go") },
	} {
		m := maps.Clone(module)
		change(m)
		if _, err := generate(m); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("got %v, want %q", err, name)
		}
	}
}

func TestWriteThenCheck(t *testing.T) {
	dir := t.TempDir()
	if err := os.CopyFS(dir, module); err != nil {
		t.Fatal(err)
	}
	err := run(dir, true)
	if err == nil || !strings.Contains(err.Error(), "README.md is out of date at line 2") || !strings.Contains(err.Error(), "docs/cli.md") {
		t.Fatalf("got %v, want README.md and docs/cli.md out of date", err)
	}
	if err := run(dir, false); err != nil {
		t.Fatal(err)
	}
	if err := run(dir, true); err != nil {
		t.Errorf("just written, and yet: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "docs", "cli.md"), []byte("by hand\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := run(dir, true); err == nil {
		t.Error("a change by hand was not seen")
	}
}
