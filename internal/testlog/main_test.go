package main

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/versions"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestReport gives report the real output of the go command for a small module,
// so that the test notices a change of the format.
func TestReport(t *testing.T) {
	for _, c := range []struct {
		name, code string
		noskip     bool
		ok         bool
		want, not  []string
	}{
		{
			name: "all pass",
			code: "func TestA(t *testing.T) { t.Log(\"quiet\") }\nfunc TestB(t *testing.T) { t.Run(\"sub\", func(*testing.T) {}) }",
			ok:   true,
			want: []string{"ok  \texample.org/m", "\n3 passed, 0 failed, 0 skipped\n"},
			not:  []string{"quiet", "=== RUN"},
		},
		{
			name: "one fails",
			code: "func TestA(t *testing.T) { t.Log(\"quiet\") }\nfunc TestB(t *testing.T) { t.Error(\"loud\") }",
			want: []string{"loud", "--- FAIL: TestB", "FAIL\texample.org/m", "1 passed, 1 failed, 0 skipped\nfailed: example.org/m TestB\n"},
			not:  []string{"quiet"},
		},
		{
			name: "skip allowed",
			code: "func TestA(t *testing.T) {}\nfunc TestB(t *testing.T) { t.Skip(\"no server\") }",
			ok:   true,
			want: []string{"skipped: example.org/m TestB: m_test.go:6: no server", "1 passed, 0 failed, 1 skipped\n"},
		},
		{
			name:   "skip refused",
			code:   "func TestA(t *testing.T) {}\nfunc TestB(t *testing.T) { t.SkipNow() }",
			noskip: true,
			want:   []string{"TestB: no reason given", "counts as a failure"},
		},
		{
			name: "crash",
			code: "func TestA(t *testing.T) { t.Log(\"before\"); panic(\"out\") }",
			want: []string{"before", "panic: out", "0 passed, 1 failed, 0 skipped\n"},
		},
		{
			name: "exit",
			code: "func TestA(t *testing.T) { t.Log(\"before\"); os.Exit(0) }",
			want: []string{"FAIL\texample.org/m", " failed, 0 skipped\n"},
		},
		{
			// The output that explains the failure is that of a test that
			// passed.
			name: "no test fails",
			code: "func TestA(t *testing.T) { println(\"reason\") }\nfunc TestMain(m *testing.M) { m.Run(); os.Exit(1) }",
			want: []string{"reason", "FAIL\texample.org/m", "1 passed, 0 failed, 0 skipped\n"},
		},
		{
			name: "does not compile",
			code: "func TestA(t *testing.T) { nowhere() }",
			want: []string{"undefined: nowhere", "[build failed]"},
		},
		{
			name: "no test",
			code: "",
			want: []string{"0 passed, 0 failed, 0 skipped\nno test ran\n"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out strings.Builder
			ok, _, err := report(strings.NewReader(goTest(t, c.code)), &out, c.noskip, nil)
			if err != nil {
				t.Fatal(err)
			}
			if ok != c.ok {
				t.Errorf("ok = %v, want %v", ok, c.ok)
			}
			for _, s := range c.want {
				if !strings.Contains(out.String(), s) {
					t.Errorf("lacks %q", s)
				}
			}
			for _, s := range c.not {
				if strings.Contains(out.String(), s) {
					t.Errorf("has %q", s)
				}
			}
			if t.Failed() {
				t.Logf("whole output:\n%s", &out)
			}
		})
	}
}

// goTest returns the output of `go test -json` for a package of one test file.
func goTest(t *testing.T, code string, flags ...string) string {
	t.Helper()
	dir := t.TempDir()
	for name, data := range map[string]string{
		"go.mod":    "module example.org/m\n\ngo 1.26\n",
		"m_test.go": "package m\n\nimport (\"os\"; \"testing\"); var _, _ = testing.Short, os.Exit\n\n" + code + "\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("go", append([]string{"test", "-json", "."}, flags...)...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOFLAGS=", "GOWORK=off")
	out, err := cmd.CombinedOutput()
	if _, failed := errors.AsType[*exec.ExitError](err); err != nil && !failed {
		t.Fatal(err)
	}
	return string(out)
}

func TestOtherLinesPass(t *testing.T) {
	var out strings.Builder
	in := "go: downloading example.org/x v1.0.0\n{\"Action\":\"pass\",\"Package\":\"p\",\"Test\":\"TestA\"}\nlast, without an end"
	ok, _, err := report(strings.NewReader(in), &out, true, nil)
	if err != nil || !ok {
		t.Fatalf("ok = %v, err = %v", ok, err)
	}
	want := "go: downloading example.org/x v1.0.0\nlast, without an end1 passed, 0 failed, 0 skipped\n"
	if out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
}

// TestListed checks that tests that a list names have to pass, whatever the
// others do.
func TestListed(t *testing.T) {
	list := "F1 redis redislock.TestF1_Lost redislock.TestLocks/a_b\nF2 redis redislock/goredis.TestX redislock.TestF1_Lost redislock.Open\n"
	names := named([]byte(list))
	if got := strings.Join(names, " "); got != "redislock.TestF1_Lost redislock.TestLocks/a_b redislock/goredis.TestX" {
		t.Fatalf("named %q", got)
	}
	in := `{"Action":"pass","Package":"example.org/m/redislock","Test":"TestF1_Lost"}
{"Action":"pass","Package":"example.org/m/redislock/goredis","Test":"TestX"}
{"Action":"pass","Package":"example.org/m/redislock","Test":"TestLocks"}
`
	for last, want := range map[string]bool{"pass": true, "skip": false, "fail": false, "output": false} {
		var out strings.Builder
		ok, _, err := report(strings.NewReader(in+`{"Action":"`+last+`","Package":"example.org/m/redislock","Test":"TestLocks/a_b"}`), &out, false, names)
		if err != nil || ok != want {
			t.Errorf("%s: ok = %v, err = %v", last, ok, err)
		}
		if told := strings.Contains(out.String(), "listed, and has not passed: redislock.TestLocks/a_b\n"); told == want {
			t.Errorf("%s: it said %q", last, out.String())
		}
	}
}

// TestPasses checks that a run reports, for each package that passed, the
// number of tests that passed and the tests that were skipped, and nothing for
// a package that failed.
func TestPasses(t *testing.T) {
	const pkg = `"Package":"github.com/holdfast-go/holdfast/`
	in := `{"Action":"pass",` + pkg + `redlock","Test":"TestA"}
{"Action":"pass",` + pkg + `redlock"}
{"Action":"skip",` + pkg + `fence/redisfence","Test":"TestC/x"}
{"Action":"skip",` + pkg + `fence/redisfence","Test":"TestB"}
{"Action":"pass",` + pkg + `fence/redisfence","Test":"TestC"}
{"Action":"pass",` + pkg + `stock","Test":"TestD"}
{"Action":"fail",` + pkg + `stock","Test":"TestE"}
{"Action":"fail",` + pkg + `stock"}
{"Action":"skip",` + pkg + `empty"}
{"Action":"pass",` + pkg + `none"}
{"Action":"pass",` + pkg + `cut","Test":"TestF"}
`
	_, passes, err := report(strings.NewReader(in+`{"Action":"pass",`+pkg+`fence/redisfence"}`), io.Discard, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := []versions.Pass{{Package: "redlock", Tests: 1}, {Package: "fence/redisfence", Tests: 1, Skipped: []string{"TestB", "TestC/x"}}}
	if !reflect.DeepEqual(passes, want) {
		t.Errorf("got %+v, want %+v", passes, want)
	}
}

// TestRecord runs the program itself. It checks that only packages without a
// failure get into the record, and that a malformed -record is refused before
// anything is read.
func TestRecord(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(dir, "testlog")
	if out, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if err := os.MkdirAll(filepath.Join(dir, "docs", "stores"), 0o700); err != nil {
		t.Fatal(err)
	}
	run := func(record, last string) error {
		if err := os.WriteFile(filepath.Join(dir, "servers"), []byte(record+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(program, "-record", "servers")
		cmd.Dir = dir
		cmd.Stdin = strings.NewReader(`{"Action":"pass","Package":"p","Test":"TestA"}` + "\n" + `{"Action":"` + last + `","Package":"p"}`)
		out, err := cmd.CombinedOutput()
		t.Logf("%s", out)
		return err
	}
	recorded := func() []versions.Pass {
		data, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(versions.File)))
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		all, err2 := versions.Parse(data)
		if err := errors.Join(err, err2); err != nil {
			t.Fatal(err)
		}
		return all
	}
	for record, last := range map[string]string{"p mysql-9 9.7.4": "fail", "p mysql-9": "pass", "p ftp-1 1": "pass", "": "pass"} {
		if run(record, last) == nil || recorded() != nil {
			t.Errorf("-record %q with a package's %s is recorded: %v", record, last, recorded())
		}
	}
	if err := run("q etcd-3.5 3.5.16\np mysql-9 9.7.4 of Debian", "pass"); err != nil {
		t.Fatal(err)
	}
	if all := recorded(); len(all) != 1 || all[0].Version != "9.7.4 of Debian" || all[0].Package != "p" || all[0].Tests != 1 {
		t.Errorf("recorded %+v", all)
	}
}
