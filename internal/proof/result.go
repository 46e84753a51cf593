package main

import (
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// writeResult writes what the runs came to, as RESULT.md has it.
func writeResult(w io.Writer, runs []*Run, wrong []string, lane string) {
	p := func(format string, args ...any) { fmt.Fprintf(w, format+"\n", args...) }
	p("# Result of the model checker\n")
	p("Written by `go run ./internal/proof -result proof/RESULT.md`, lane `%s`, with TLC 2.18 and", lane)
	p("one worker; [the page about the proof](../docs/proof/README.md) explains it. \"holds\" means")
	p("that every state of the bounded world was looked at. It says nothing about a larger one.\n")
	p("## Specifications\n")
	p("| configuration | world | properties | verdict | distinct states | generated | depth | processor s |")
	p("|---|---|---|---|---|---|---|---|")
	var distinct int64
	var took time.Duration
	for _, r := range runs {
		took += r.Outcome.CPU
		if r.Kind != Check {
			continue
		}
		o := r.Outcome
		distinct += o.Distinct
		p("| %s | %s | %s | %s | %d | %d | %d | %.0f |", r.Config.Name, r.Config.About,
			strings.Join(slices.Concat(r.Config.Invariants, r.Config.Properties), ", "), verdict(r), o.Distinct, o.Generated, o.Depth, o.CPU.Seconds())
	}
	p("\nTogether %d distinct states; all runs of this page took %.0f s of processor time.\n", distinct, took.Seconds())
	p("## Mutants\n")
	p("Each is the specification with one mistake, checked for the one property that has to refute it.\n")
	p("| mistake | where it is from | configuration | refuted by | states in the counterexample | distinct states until then | verdict |")
	p("|---|---|---|---|---|---|---|")
	for _, r := range runs {
		if r.Kind == Refute {
			p("| %s | %s | %s | %s | %d | %d | %s |", r.Mutant.Name, r.Mutant.Was, r.Config.Name, r.Property, len(r.Outcome.Trace), r.Outcome.Distinct, verdict(r))
		}
	}
	p("\n## Reachable\n")
	p("Each of these happens, as the properties take for granted: that it never does is refuted.\n")
	p("| configuration | refuted | states in the example | verdict |")
	p("|---|---|---|---|")
	for _, r := range runs {
		if r.Kind == Witness {
			p("| %s | %s | %d | %s |", r.Config.Name, r.Property, len(r.Outcome.Trace), verdict(r))
		}
	}
	p("\n## Actions\n")
	p("How often each was taken in the runs that hold: to a state not seen before, of all.\n")
	for _, line := range actions(runs) {
		p("%s", line)
	}
	if len(wrong) > 0 {
		p("\n## Wrong\n")
		for _, s := range wrong {
			p("- %s", s)
		}
	}
}

// tracesHead begins the last section of RESULT.md.
const tracesHead = "\n## Traces\n"

// addTraces writes what came of traces as the last section of a file.
func addTraces(name string, schedules int, memory, second *Accepted, wrong int) error {
	text, err := os.ReadFile(filepath.Clean(name))
	if err != nil {
		return err
	}
	before, _, _ := strings.Cut(string(text), tracesHead)
	var b strings.Builder
	p := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	p("%s%s", before, tracesHead)
	p("Written by `go run ./internal/proof -traces %d -result proof/RESULT.md`: the requests of so many", schedules)
	p("schedules to the store in memory, and of some to the second one, held against module Trace.")
	p("Of stores, drivers and a core with a bug, and of traces that were changed, %d were accepted", wrong)
	p("that had to be refused, or refused that had to be accepted.\n")
	p("| store | traces | events | refused | s of TLC |")
	p("|---|---|---|---|---|")
	for _, x := range []struct {
		store string
		a     *Accepted
	}{{"memory", memory}, {"second", second}} {
		p("| %s | %d | %d | %d | %.0f |", x.store, x.a.Traces, x.a.Events, len(x.a.Refused), x.a.Seconds)
	}
	p("\nHow many accepted traces took each part of an action:\n")
	var parts []string
	for _, part := range slices.Sorted(maps.Keys(memory.Taken)) {
		parts = append(parts, fmt.Sprintf("%s %d", part, len(memory.Taken[part])+len(second.Taken[part])))
	}
	p("%s", strings.Join(parts, ", "))
	return os.WriteFile(name, []byte(b.String()), 0o644)
}

func verdict(r *Run) string {
	switch {
	case r.Wrong != "":
		return "**WRONG**: " + r.Wrong
	case r.Outcome.Verdict == Walked:
		return fmt.Sprintf("no violation in %d states to depth %d", r.Outcome.Generated, r.Config.Steps)
	case r.Kind == Check:
		return r.Outcome.Verdict.String()
	}
	return "refuted"
}

func actions(runs []*Run) []string {
	sum := map[string]Taken{}
	for _, r := range runs {
		if r.Kind == Check && r.Outcome.Verdict == Holds {
			for a, n := range r.Outcome.Actions {
				sum[a] = Taken{sum[a].New + n.New, sum[a].All + n.All}
			}
		}
	}
	modules := map[string][]string{}
	for _, a := range slices.Sorted(maps.Keys(sum)) {
		m, name, _ := strings.Cut(a, ".")
		modules[m] = append(modules[m], fmt.Sprintf("%s %d of %d", name, sum[a].New, sum[a].All))
	}
	var lines []string
	for _, m := range slices.Sorted(maps.Keys(modules)) {
		lines = append(lines, fmt.Sprintf("- **%s**: %s", m, strings.Join(modules[m], ", ")))
	}
	return lines
}
