package main

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

// several is the code of tests of which TestDone has ended when the run is cut,
// and the others are running.
const several = `
var began = make(chan struct{})
func TestDone(t *testing.T) {}
func TestFirst(t *testing.T) { t.Parallel(); t.Log("first was here"); close(began); select {} }
func TestParent(t *testing.T) { t.Parallel(); t.Run("sub", func(t *testing.T) { t.Log("sub was here"); <-began; CUT }) }
`

// TestCutRunNamesItsTests cuts runs in each way in which one can end before its
// tests. It checks that each running test counts as failed and is named at the
// end.
func TestCutRunNamesItsTests(t *testing.T) {
	for name, c := range map[string]struct {
		cut   string
		flags []string
		says  string
	}{
		"time-out":         {"select {}", []string{"-timeout=2s"}, "test timed out after 2s"},
		"panic":            {"go panic(\"out\"); select {}", nil, "panic: out"},
		"panic of a test":  {"panic(\"out\")", nil, "panic: out"},
		"fatal signal":     {"p, _ := os.FindProcess(os.Getpid()); p.Kill(); select {}", nil, "signal: killed"},
		"end of a process": {"os.Exit(0)", nil, "FAIL"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			flags := append([]string{"-parallel=2"}, c.flags...)
			code := strings.Replace(several, "CUT", c.cut, 1)
			checkCut(t, goTest(t, code, flags...), c.says)
		})
	}
}

// TestEndOfTheGoCommandNamesItsTests reads an output whose end is missing.
func TestEndOfTheGoCommandNamesItsTests(t *testing.T) {
	in := `{"Time":"2030-01-01T10:00:00Z","Action":"run","Package":"example.org/m","Test":"TestDone"}
{"Time":"2030-01-01T10:00:01Z","Action":"pass","Package":"example.org/m","Test":"TestDone"}
{"Time":"2030-01-01T10:00:01Z","Action":"run","Package":"example.org/m","Test":"TestPaused"}
{"Time":"2030-01-01T10:00:01Z","Action":"pause","Package":"example.org/m","Test":"TestPaused"}
{"Time":"2030-01-01T10:00:01Z","Action":"run","Package":"example.org/m","Test":"TestFirst"}
{"Time":"2030-01-01T10:00:01Z","Action":"output","Package":"example.org/m","Test":"TestFirst","Output":"first was here\n"}
{"Time":"2030-01-01T10:00:02Z","Action":"run","Package":"example.org/m","Test":"TestParent"}
{"Time":"2030-01-01T10:00:02Z","Action":"run","Package":"example.org/m","Test":"TestParent/sub"}
{"Time":"2030-01-01T10:00:02Z","Action":"output","Package":"example.org/m","Test":"TestParent/sub","Output":"sub was here\n"}
{"Time":"2030-01-01T10:09:02Z","Action":"output","Package":"example.org/m","Test":"TestFirst","Output":"still here\n"}
{"Time":"2030-01-01T10:09:02Z","Action":"output","Package":"example.org/m","Test":"TestDone","Output":"goroutine 7 [select]:\n"}
`
	out := checkCut(t, in, "FAIL\texample.org/m\tended without a result\n")
	for _, want := range []string{"failed: example.org/m TestParent/sub, which was running for 9m0s when", "goroutine 7 [select]:"} {
		if !strings.Contains(out, want) {
			t.Errorf("lacks %q:\n%s", want, out)
		}
	}
}

// checkCut runs report on the output of the go command and returns its text.
func checkCut(t *testing.T, in, says string) string {
	t.Helper()
	var out strings.Builder
	ok, passes, err := report(strings.NewReader(in), &out, false, nil)
	if err != nil || ok || len(passes) > 0 {
		t.Errorf("ok = %v, err = %v, passes %v", ok, err, passes)
	}
	for _, s := range []string{says, "first was here", "sub was here", "1 passed, "} {
		if !strings.Contains(out.String(), s) {
			t.Errorf("lacks %q", s)
		}
	}
	var names []string
	for _, m := range regexp.MustCompile(`(?m)^failed: example\.org/m (\S+?),? `).FindAllStringSubmatch(strings.ReplaceAll(out.String(), "\n", " \n"), -1) {
		names = append(names, m[1])
	}
	slices.Sort(names)
	names = slices.DeleteFunc(slices.Compact(names), func(s string) bool { return s == "TestParent" }) // a panic ends it, too
	if got := strings.Join(names, " "); got != "TestFirst TestParent/sub" {
		t.Errorf("named %q", got)
	}
	if t.Failed() {
		t.Logf("whole output:\n%s", &out)
	}
	return out.String()
}
