//go:build unix

package cli

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/holdfast-go/holdfast/internal/cli/bench"
)

// TestBench: scenarios of one and of several processes, and one that ends one,
// on the store that every user has.
func TestBench(t *testing.T) {
	t.Parallel()
	url := sqlite(t)
	// On a slow disk that others use too there were five acquisitions in 200 ms.
	var lack []string
	for _, duration := range []string{"1s", "4s", "16s"} {
		r := command(t, "bench", "--store", url, "--scenario", "alone-1,clients-2,crash", "--runs", "1", "--duration", duration, "--json").start().end()
		r.want(t, exitOK, "", "")
		o := objects(t, r.out)
		if len(o) != 1 {
			t.Fatalf("%d objects: %q", len(o), r.out)
		}
		rows := o[0]["rows"].([]any)
		if len(rows) != 3 {
			t.Fatalf("%d rows: %v", len(rows), rows)
		}
		lack = nil
		for i, figure := range []string{"cycle_p50_us", "handoff_p50_us", "recovery_ms"} {
			row := rows[i].(map[string]any)
			f := row["figures"].(map[string]any)[figure]
			if f == nil || f.(map[string]any)["median"].(float64) <= 0 {
				lack = append(lack, fmt.Sprintf("%v has no %s: %v", row["scenario"], figure, row["figures"]))
			}
		}
		if lack == nil {
			break
		}
	}
	for _, text := range lack {
		t.Error(text)
	}
	// Nothing stays behind.
	if out := holdfastHere("ls", "--store", url, "--json").out; out != "" {
		t.Errorf("left behind: %s", out)
	}
}

// TestBenchInterrupted: what it held is given back, not left to its lease.
func TestBenchInterrupted(t *testing.T) {
	t.Parallel()
	url := sqlite(t)
	p := command(t, "bench", "--store", url, "--scenario", "clients-2-1ms", "--duration", "10m").start()
	names := func() string { return holdfastHere("ls", "--store", url, "--json").out }
	eventually(t, func() bool { return strings.Contains(names(), "holdfast-bench/") }, func() string { return "it takes no lock" })
	p.signal(syscall.SIGINT)
	p.end().want(t, exitSignal+int(syscall.SIGINT), "", "ended by signal: interrupt")
	if out := names(); out != "" {
		t.Errorf("left behind: %s", out)
	}
}

// TestBenchMemory gives the goroutines a second, and longer on a machine on which
// not both hold within it: without a hand-off there is none to report.
func TestBenchMemory(t *testing.T) {
	t.Parallel()
	var r result
	for _, duration := range []string{"1s", "4s", "16s"} {
		r = command(t, "bench", "--store", "memory:", "--scenario", "process-2,clients-8", "--runs", "1", "--duration", duration).start().end()
		r.want(t, exitOK, "", "1 runs of "+duration+" of each of 2 scenarios")
		if strings.Contains(r.out, "hand-off p50 µs") {
			break
		}
	}
	r.want(t, exitOK, "hand-off p50 µs", "")
	if !strings.Contains(r.out, "clients-8: not run: processes do not share memory") {
		t.Errorf("output %q", r.out)
	}
}

func TestBenchUsage(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"bench x":                   "bench takes no arguments",
		"bench --scenario sideways": `there is no scenario "sideways", but alone-1, `,
		"bench --scenario=":         "there is nothing to run",
		"bench --runs 0":            "0 runs of 1s",
		"bench --duration 0s":       "3 runs of 0s",
	} {
		holdfastHere(append([]string{"--store", "memory:"}, strings.Fields(line)...)...).want(t, exitUsage, "", want)
	}
	if _, err := bench.Choose(usualScenarios); err != nil {
		t.Error(err)
	}
}

func TestBenchCompletion(t *testing.T) {
	t.Parallel()
	out := holdfastHere("__complete", "bench", "--scenario", "alone-1,alone").out
	if !strings.Contains(out, "alone-1,alone-64\t") || strings.Contains(out, "alone-1,alone-1\t") {
		t.Errorf("offers %q", out)
	}
}

// TestBenchProgress: the line says what is measured, and how much of all is done.
func TestBenchProgress(t *testing.T) {
	t.Parallel()
	s := bench.Step{Scenario: bench.Scenario{Name: "alone-1"}, Run: 2, Of: 3, Done: 5, Steps: 10}
	if got := benchStep(s); got != "50 %: alone-1, run 2 of 3" {
		t.Errorf("the line is %q", got)
	}
	s.Run = 0
	if got := benchStep(s); got != "50 %: alone-1, warming up" {
		t.Errorf("the line is %q", got)
	}
}
