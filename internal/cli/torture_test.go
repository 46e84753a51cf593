//go:build unix

package cli

import (
	"bytes"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/safety/checker"
	"github.com/holdfast-go/holdfast/internal/safety/torture"
)

// TestTorture: a short run with all faults, on the store that every user has.
func TestTorture(t *testing.T) {
	t.Parallel()
	url := sqlite(t)
	var p *process
	var o []map[string]any
	for _, duration := range []string{"5s", "15s", "45s"} { // a slow machine needs longer
		p = command(t, "torture", "--store", url, "--duration", duration, "--ttl", "1s", "--processes", "3", "--goroutines", "4",
			"--seed", "5", "--slack", "20s", "--history", "history", "--json").start()
		r := p.end().want(t, exitOK, "", "")
		if o = objects(t, r.out); len(o) != 1 {
			t.Fatalf("%d objects: %q", len(o), r.out)
		}
		if o[0]["seed"] != 5.0 || o[0]["overlaps"] != 0.0 || len(o[0]["violations"].([]any)) != 0 {
			t.Errorf("report: %v", o[0])
		}
		if o[0]["grants"].(float64) >= 10 && len(o[0]["faults"].(map[string]any)) > 0 {
			break
		}
	}
	if o[0]["grants"].(float64) < 10 || len(o[0]["faults"].(map[string]any)) == 0 {
		t.Errorf("too few grants or no faults: %v", o[0])
	}
	asks := strings.Count(p.read("history"), `"e":"ask"`)
	if float64(asks) != o[0]["calls"] {
		t.Errorf("%d calls in the history, %v in the report", asks, o[0]["calls"])
	}
	holdfastHere("ls", "--store", url).want(t, exitOK, "", "") // and nothing stays behind
	if out := holdfastHere("ls", "--store", url, "--json").out; out != "" {
		t.Errorf("left behind: %s", out)
	}
}

// TestTortureMemory: one process, and it says so.
func TestTortureMemory(t *testing.T) {
	t.Parallel()
	r := holdfastHere("torture", "--store", "memory:", "--duration", "1s", "--ttl", "200ms", "--seed", "3", "--slack", "20s")
	r.want(t, exitOK, "no violation found in ", "processes do not share memory")
	if !strings.Contains(r.out, "seed 3\n") {
		t.Errorf("output %q", r.out)
	}
	holdfastHere("torture", "--store", "memory:", "--faults", "kill").want(t, exitUsage, "", "processes do not share memory")
}

func TestTortureUsage(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"torture x":                              "torture takes no arguments",
		"torture --duration 0s":                  "a duration of 0s",
		"torture --names 0":                      "each must be at least 1",
		"torture --faults fire":                  `there is no fault "fire"`,
		"torture --slack -1s":                    "a slack of -1s",
		"torture --ttl 1ns":                      "below this store's minimum",
		"torture --history " + os.DevNull + "/x": "the history: ",
	} {
		r := holdfastHere(append([]string{"--store", "memory:"}, strings.Fields(line)...)...).want(t, exitUsage, "", want)
		if strings.Count(r.err, "\n") != 1 {
			t.Errorf("%s: %q, want nothing before the refusal", line, r.err)
		}
	}
}

// TestTortureReport: a violation is shown whole, and nothing of it reaches the
// terminal as anything but text.
func TestTortureReport(t *testing.T) {
	t.Parallel()
	text := reportText(torture.Report{Seed: 9, Violations: []string{"C1 m: two\x1b[2J held\n    a | b\n"}, More: 2})
	for _, want := range []string{"3 violations, seed 9\n", "C1 m: two?[2J held\n", "    a | b\n", "and 2 more\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in %q", want, text)
		}
	}
	if bytes.ContainsRune([]byte(text), '\x1b') {
		t.Error("an escape went through")
	}
}

// TestTortureProgress: one line, over the last one, that fits.
func TestTortureProgress(t *testing.T) {
	t.Parallel()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	p := progress{screen: w}
	p.show(torture.Snapshot{Phase: "run", Elapsed: 90 * time.Second, Violations: 2, Active: []string{"pause", "requests"},
		Stats: checker.Stats{Calls: 123456789, Faults: map[string]int64{"pause": 3, "kill": 4}}})
	p.clear()
	w.Close()
	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(b), "\r")
	if len(lines) != 3 || lines[2] != "\x1b[K" || strings.Contains(string(b), "\n") {
		t.Errorf("wrote %q", b)
	}
	line := strings.TrimSuffix(lines[1], "\x1b[K")
	if want := "run 1m30s: 2 violations, 123456789 operations, 7 faults, 0 lost, 0 stale; now"; len(line) > 79 || !strings.HasPrefix(line, want) {
		t.Errorf("wrote %q, %d columns", line, len(line))
	}
}
