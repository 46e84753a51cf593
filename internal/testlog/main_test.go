package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The tests feed report with what the go command really prints for a small
// module, so that a change of its format is seen.
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
			want: []string{"loud", "--- FAIL: TestB", "FAIL\texample.org/m", "1 passed, 1 failed, 0 skipped\n"},
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
			// The words of what made the package fail are a passed test's.
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
			ok, err := report(strings.NewReader(goTest(t, c.code)), &out, c.noskip, nil)
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

// goTest returns what `go test -json` prints for a package of one test file.
func goTest(t *testing.T, code string) string {
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
	cmd := exec.Command("go", "test", "-json", ".")
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
	ok, err := report(strings.NewReader(in), &out, true, nil)
	if err != nil || !ok {
		t.Fatalf("ok = %v, err = %v", ok, err)
	}
	want := "go: downloading example.org/x v1.0.0\nlast, without an end1 passed, 0 failed, 0 skipped\n"
	if out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
}

// TestListed: tests that a page names have to have passed, whatever else did.
func TestListed(t *testing.T) {
	page := "| F1 | `redislock.TestF1_Lost` `redislock.TestLocks/a_b` |\n`go test` `redislock/goredis.TestX` and `redislock.TestF1_Lost` again, `Open`\n"
	names := named([]byte(page))
	if got := strings.Join(names, " "); got != "redislock.TestF1_Lost redislock.TestLocks/a_b redislock/goredis.TestX" {
		t.Fatalf("named %q", got)
	}
	in := `{"Action":"pass","Package":"example.org/m/redislock","Test":"TestF1_Lost"}
{"Action":"pass","Package":"example.org/m/redislock/goredis","Test":"TestX"}
{"Action":"pass","Package":"example.org/m/redislock","Test":"TestLocks"}
`
	for last, want := range map[string]bool{"pass": true, "skip": false, "fail": false, "output": false} {
		var out strings.Builder
		ok, err := report(strings.NewReader(in+`{"Action":"`+last+`","Package":"example.org/m/redislock","Test":"TestLocks/a_b"}`), &out, false, names)
		if err != nil || ok != want {
			t.Errorf("%s: ok = %v, err = %v", last, ok, err)
		}
		if told := strings.Contains(out.String(), "listed, and has not passed: redislock.TestLocks/a_b\n"); told == want {
			t.Errorf("%s: it said %q", last, out.String())
		}
	}
}
