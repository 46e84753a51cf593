package drivertest

import (
	"encoding/json"
	"flag"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// A coreFlaw is a change of the core after which it releases a lock under a function
// that still runs, and the case that is there to see that.
type coreFlaw struct{ name, file, sound, broken, seenBy string }

// coreFlaws are compiled into one program. BROKEN_CORE chooses one of them.
var coreFlaws = []coreFlaw{
	{"shutdown-ends-functions", "shutdown.go", "case p >= phaseClosing && h.root.endIfBare(over):", "case (p >= phaseClosing || FLAW) && h.root.endIfBare(over):", "shutdown"},
	{"close-ends-functions", "shutdown.go", "return !r.functionRunsLocked() && r.endLocked(why)", `return (!r.functionRunsLocked() || FLAW || os.Getenv("BROKEN_CORE") == "shutdown-ends-functions") && r.endLocked(why)`, "close under functions"},
	{"close-releases-what-stays", "close.go", "case running > 0:", "case running > 0 && !FLAW:", "close under a function that stays"},
	{"close-releases-what-stays", "close.go", "case t.holds.first == nil:", "case t.holds.first == nil || FLAW:", "close under a function that stays"},
	{"max-hold-releases-at-once", "maxhold.go", "time.AfterFunc(releaseTimeout(r.queue.key.ttl), m.onOver)", "time.AfterFunc(map[bool]time.Duration{false: releaseTimeout(r.queue.key.ttl)}[FLAW], m.onOver)", "max hold under functions"},
	{"close-waits-for-callbacks", "shutdown.go", "if h.wait.inCallback {", "if h.wait.inCallback && !FLAW {", "closed by a callback"},
	{"once-in-owners-holds", "once.go", `case outer != nil && outer.queue.key.owner != "":`, `case outer != nil && outer.queue.key.owner != "" && !FLAW:`, "once inside an owner's hold"},
	{"once-forgets-via", "donerecord.go", "By: formatHolder(d.By),", "By: formatHolder(map[bool]Holder{false: d.By, true: {Owner: d.By.Owner, Host: d.By.Host, PID: d.By.PID, Since: d.By.Since, Note: d.By.Note}}[FLAW]),", "once on behalf of another"},
}

// TestF134_BrokenCoresFailTheirCases checks, for cores that release a lock under a
// function that still runs, that the case which every store's test of locks has for
// that fails, and that it passes with the same program without the flaw.
func TestF134_BrokenCoresFailTheirCases(t *testing.T) {
	program := brokenCores(t, ".")
	var tried []string
	for _, f := range coreFlaws {
		if slices.Contains(tried, f.name) {
			continue
		}
		tried = append(tried, f.name)
		for _, name := range []string{f.name, ""} {
			cmd := exec.Command(program, "-test.run", "^TestCasesAtExactTimes$/^9s$/^0s$/^"+strings.ReplaceAll(f.seenBy, " ", "_")+"$", "-test.v")
			cmd.Env = append(os.Environ(), "BROKEN_CORE="+name)
			out, err := cmd.CombinedOutput()
			switch {
			case !strings.Contains(string(out), "=== RUN   TestCasesAtExactTimes/9s/0s/"):
				t.Fatalf("the case %q did not run: %v\n%s", f.seenBy, err, out)
			case name != "" && err == nil:
				t.Errorf("the case %q passes the core %s", f.seenBy, f.name)
			case name == "" && err != nil:
				t.Errorf("the case %q fails the sound core: %v\n%s", f.seenBy, err, out)
			case name != "":
				t.Logf("%s: %.300s", f.name, out[strings.Index(string(out), "    "):])
			}
		}
	}
}

var allStores = flag.Bool("drivertest.cores", false, "run the broken cores on every store, instead of SQLite and Redis alone: make soak WHAT=cores")

// lockTests has the test of locks of each store, by the folder of its package. The
// store of MySQL is tested on MariaDB.
var lockTests = []struct{ folder, test string }{
	{"sqlitelock", "TestLocks"},
	{"redislock", "TestLocks"},
	{"redislock", "TestSentinelLocks/locks"},
	{"redislock", "TestClusterLocks"},
	{"redlock", "TestRedisLocks"},
	{"etcdlock", "TestLocks"},
	{"natslock", "TestLocks"},
	{"pglock", "TestLocks"},
	{"mysqllock", "TestLocks"},
	{"zklock", "TestLocks"},
}

// TestF134_BrokenCoresFailOnRealStores checks the same on SQLite and Redis, and with
// -drivertest.cores on every store: the case of each flaw fails in the store's own test
// of locks, and all pass without a flaw.
func TestF134_BrokenCoresFailOnRealStores(t *testing.T) {
	t.Parallel()
	stores := lockTests[:2]
	if *allStores {
		stores = lockTests
	}
	programs := map[string]string{}
	for _, s := range stores {
		if programs[s.folder] == "" {
			programs[s.folder] = brokenCores(t, "../"+s.folder)
		}
		t.Run(s.folder+" "+strings.ReplaceAll(s.test, "/", " "), func(t *testing.T) {
			seenBy := map[string]string{}
			var all []string
			for _, f := range coreFlaws {
				seenBy[f.name] = f.seenBy
				all = append(all, f.seenBy)
			}
			seenBy[""] = strings.Join(all, "|")
			for name, cases := range seenBy {
				t.Run(name, func(t *testing.T) {
					if !*allStores { // else a machine with the servers of all is too busy for any lease
						t.Parallel()
					}
					of := "^" + strings.ReplaceAll(s.test, "/", "$/^") + "$"
					cmd := exec.Command(programs[s.folder], "-test.run", of+"/^("+strings.ReplaceAll(cases, " ", "_")+")$", "-test.v")
					cmd.Dir = "../" + s.folder
					cmd.Env = append(os.Environ(), "BROKEN_CORE="+name)
					out, err := cmd.CombinedOutput()
					for _, c := range strings.Split(cases, "|") {
						failed := strings.Contains(string(out), "--- FAIL: "+s.test+"/"+strings.ReplaceAll(c, " ", "_")+" ")
						passed := strings.Contains(string(out), "--- PASS: "+s.test+"/"+strings.ReplaceAll(c, " ", "_")+" ")
						if failed == passed || failed != (name != "") {
							t.Errorf("the case %q of the core %q: failed %v, passed %v, %v\n%s", c, name, failed, passed, err, out)
						}
					}
				})
			}
		})
	}
}

// brokenCores compiles the tests of a package with the flaws in the core.
func brokenCores(t *testing.T, folder string) (program string) {
	t.Helper()
	temporary := t.TempDir()
	sources, replace := map[string]string{}, map[string]string{}
	for _, f := range coreFlaws {
		path, err := filepath.Abs("../" + f.file)
		if err != nil {
			t.Fatal(err)
		}
		if sources[path] == "" {
			source, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			sources[path] = strings.Replace(string(source), "import ", "import \"os\"\nimport ", 1)
		}
		if strings.Count(sources[path], f.sound) != 1 {
			t.Fatalf("%s has changed: it must have once, for the flaw %s: %s", f.file, f.name, f.sound)
		}
		flaw := "(os.Getenv(\"BROKEN_CORE\") == " + strconv.Quote(f.name) + ")"
		sources[path] = strings.Replace(sources[path], f.sound, strings.ReplaceAll(f.broken, "FLAW", flaw), 1)
	}
	for path, source := range sources {
		replace[path] = filepath.Join(temporary, filepath.Base(path))
		if err := os.WriteFile(replace[path], []byte(source), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	list := filepath.Join(temporary, "overlay.json")
	if err := os.WriteFile(list, overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	program = filepath.Join(temporary, "broken.test")
	build := exec.Command("go", "test", "-c", "-overlay", list, "-o", program, ".")
	build.Dir = folder // which may be a module of its own
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return program
}

// TestF134_EveryStoreAsksForFunctions checks that the tests of every store that
// anylock opens run the cases of locks, and leave none out that coreFlaws names.
func TestF134_EveryStoreAsksForFunctions(t *testing.T) {
	const module = "github.com/holdfast-go/holdfast/"
	sources, err := filepath.Glob("../anylock/*.go")
	if err != nil {
		t.Fatal(err)
	}
	stores := []string{"redislock/goredis"}
	for _, name := range sources {
		if strings.HasSuffix(name, "_test.go") {
			continue // an example imports anylock itself
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range f.Imports {
			path, _ := strconv.Unquote(i.Path.Value)
			if folder, ok := strings.CutPrefix(path, module); ok && strings.HasSuffix(folder, "lock") || folder == "internal/lockclient" {
				stores = append(stores, folder)
			}
		}
	}
	slices.Sort(stores)
	stores = slices.Compact(stores)
	if len(stores) < 10 {
		t.Errorf("anylock opens %v: too few", stores)
	}
	for _, folder := range stores {
		files, err := filepath.Glob("../" + folder + "/*_test.go")
		if err != nil {
			t.Fatal(err)
		}
		asks := false
		for _, name := range files {
			source, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			asks = asks || strings.Contains(string(source), "drivertest.RunLocks(")
			for _, f := range coreFlaws {
				if strings.Contains(string(source), strconv.Quote(f.seenBy)) {
					t.Errorf("%s leaves out the case %q", name, f.seenBy)
				}
			}
		}
		if !asks {
			t.Errorf("no test of %s runs the cases of locks", folder)
		}
	}
}
