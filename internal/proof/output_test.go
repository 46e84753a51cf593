package main

import (
	"os"
	"strings"
	"testing"
)

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func parse(t *testing.T, text string) *Outcome {
	t.Helper()
	o, err := parseOutput(text)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func TestOutputThatHoldsHasCountsAndActions(t *testing.T) {
	o := parse(t, read(t, "holds.txt"))
	if o.Verdict != Holds || o.Distinct != 8 || o.Generated != 15 || o.Open != 0 || o.Depth != 6 {
		t.Errorf("%+v", o)
	}
	if got := o.Actions["Door.Leave"]; got != (Taken{0, 3}) {
		t.Errorf("Door.Leave: %v", got)
	}
	if got, ok := o.Actions["Door.Lift"]; !ok || got != (Taken{}) {
		t.Errorf("Door.Lift: %v %v", got, ok)
	}
	if _, ok := o.Actions["Door.Few"]; ok {
		t.Error("an invariant counts as an action")
	}
}

func TestOutputThatViolatesHasAPropertyAndAWay(t *testing.T) {
	o := parse(t, read(t, "violated.txt"))
	if o.Verdict != Violated || o.Property != "Few" || len(o.Trace) != 6 {
		t.Fatalf("%v %q, %d states", o.Verdict, o.Property, len(o.Trace))
	}
	if o.Trace[0].Action != "Init" || o.Trace[1].Action != "Open" || !strings.Contains(o.Trace[5].State, "in = 4") {
		t.Errorf("%+v", o.Trace)
	}
}

func TestOutputOfAStepThatIsNoStepOfAnotherModuleViolates(t *testing.T) {
	o := parse(t, strings.Replace(read(t, "violated.txt"), "Invariant Few is violated.",
		"Action property line 57, col 17 to line 57, col 29 of module LineAbs is violated.", 1))
	if o.Verdict != Violated || o.Property != "temporal" || len(o.Trace) != 6 {
		t.Errorf("%v %q, %d states", o.Verdict, o.Property, len(o.Trace))
	}
}

// TestOutputOfWalksNeverHolds checks that random walks are told from all states, and
// that walks which were stopped are not taken for made.
func TestOutputOfWalksNeverHolds(t *testing.T) {
	begin := "Starting... (2026-11-22 21:00:00)\nComputed 1 initial states...\nProgress: 1,345 states checked.\n"
	if o := parse(t, begin+"Finished in 04s at (2026-11-22 21:00:04)\n"); o.Verdict != Walked || o.Generated != 1345 || o.Distinct != 0 {
		t.Errorf("made: %v, %d states", o.Verdict, o.Generated)
	}
	if o := parse(t, begin); o.Verdict != Unended {
		t.Errorf("stopped: %v", o.Verdict)
	}
	if o := parse(t, begin+"Error: Invariant Few is violated.\nFinished in 04s at (2026-11-22 21:00:04)\n"); o.Verdict != Violated || o.Property != "Few" {
		t.Errorf("violated: %v %q", o.Verdict, o.Property)
	}
}

func TestOutputWithALoopShowsWhereItBegins(t *testing.T) {
	o := parse(t, read(t, "loop.txt"))
	if o.Verdict != Violated || o.Property != "temporal" || len(o.Trace) != 2 || !o.Trace[0].Loop || o.Trace[1].Loop {
		t.Errorf("%+v", o)
	}
	o = parse(t, read(t, "stutters.txt"))
	if n := len(o.Trace); n != 2 || !o.Trace[n-1].Loop {
		t.Errorf("%+v", o.Trace)
	}
}

// TestOutputCutShortNeverHolds cuts the output of a run that holds at each line:
// no part of it is taken for a run that ended.
func TestOutputCutShortNeverHolds(t *testing.T) {
	whole := read(t, "holds.txt")
	lines := strings.SplitAfter(whole, "\n")
	last := 0
	for i, line := range lines {
		if countsRE.MatchString(strings.TrimSuffix(line, "\n")) {
			last = i
		}
	}
	for n := range last {
		if o := parse(t, strings.Join(lines[:n], "")); o.Verdict == Holds {
			t.Fatalf("the first %d of %d lines hold", n, len(lines))
		}
	}
	if o := parse(t, strings.Join(lines[:last+1], "")); o.Verdict != Holds {
		t.Errorf("with all counts it is %v", o.Verdict)
	}
}

func TestOutputStoppedByTimeSaysHowFarItGot(t *testing.T) {
	o := parse(t, read(t, "stopped.txt"))
	if o.Verdict != Unended || o.Distinct != 147457 || o.Depth != 73734 || o.Open != 0 {
		t.Errorf("%+v", o)
	}
}

func TestOutputOfMistakesFails(t *testing.T) {
	for text, want := range map[string]string{
		"":                         "no verdict",
		read(t, "syntax.txt"):      "Parse Error",
		read(t, "evaluation.txt"):  "Error:",
		"Error: Out of memory\n":   "Out of memory",
		"Error: unknown mistake\n": "unknown",
	} {
		if o := parse(t, text); o.Verdict != Failed || !strings.Contains(o.Reason, want) {
			t.Errorf("%.60q: %v, %q", text, o.Verdict, o.Reason)
		}
	}
}

func TestOutputOfAFalseAssumption(t *testing.T) {
	if o := parse(t, read(t, "assumption.txt")); o.Verdict != Violated || o.Property != assumption {
		t.Errorf("%+v", o)
	}
}

func TestOutputThatContradictsItselfIsAnError(t *testing.T) {
	text := strings.Replace(read(t, "holds.txt"), ", 0 states left on queue", ", 3 states left on queue", 1)
	if _, err := parseOutput(text); err == nil {
		t.Error("it completed with states open, and nobody minds")
	}
	text = strings.Replace(read(t, "loop.txt"), "Back to state 1", "Back to state 7", 1)
	if _, err := parseOutput(text); err == nil {
		t.Error("a way goes back to a state that it does not have, and nobody minds")
	}
}
