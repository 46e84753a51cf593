package main

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Kind is why a run is made.
type Kind int

// The kinds of runs.
const (
	Check   Kind = iota // a specification: every property holds
	Refute              // a mutant: its property fails
	Witness             // something that must be reachable: that it never happens fails
)

// Run is one run of TLC, and what came of it.
type Run struct {
	Name     string
	Kind     Kind
	Config   *Config
	Mutant   *Mutant // of Refute
	Property string  // the only one that is checked; empty: all of the configuration

	Outcome *Outcome
	Took    time.Duration
	Wrong   string // why it is not what it has to be; empty when it is
}

// plan returns the runs of a lane: a release makes those of a build, too. Of specifications
// that a release has checked, a build makes one refutation for each property that mutants
// have, and one for each configuration of what must be reachable.
func plan(configs []*Config, mutants []Mutant, release, checked bool) ([]*Run, error) {
	in := func(lane string) bool { return lane == "build" || release }
	few := !release && checked
	shortest := sample(configs, mutants)
	var runs []*Run
	for _, c := range configs {
		switch {
		case !in(c.Lane):
		case c.Expect == "holds":
			runs = append(runs, &Run{Name: c.Name, Kind: Check, Config: c})
		default:
			for _, p := range slices.Concat(c.Invariants, c.Properties) {
				only, err := c.only(p)
				if err != nil {
					return nil, err
				}
				runs = append(runs, &Run{Name: c.Name + " " + p, Kind: Witness, Config: only, Property: p})
				if few {
					break
				}
			}
		}
	}
	for i := range mutants {
		m := &mutants[i]
		of := configOf(configs, m.Config)
		if !in(m.Lane) || !in(of.Lane) || few && !shortest[m.Name] {
			continue
		}
		c, err := m.config(configs)
		if err != nil {
			return nil, err
		}
		runs = append(runs, &Run{Name: m.Config + " with " + m.Name, Kind: Refute, Config: c, Mutant: m, Property: m.Property})
	}
	return runs, nil
}

// judge notes in r whether its outcome is the one it must have.
func (r *Run) judge() {
	o := r.Outcome
	switch {
	case o.Verdict == Failed:
		r.Wrong = "TLC did not check it: " + o.Reason
	case r.Kind == Check && o.Verdict == Unended:
		r.Wrong = fmt.Sprintf("it did not end: no violation in %d states to depth %d, which proves nothing", o.Distinct, o.Depth)
	case r.Kind == Check && (o.Verdict == Walked) != (r.Config.Walks > 0) && o.Verdict != Violated:
		r.Wrong = fmt.Sprintf("its verdict is %q, with %d walks", o.Verdict, r.Config.Walks)
	case r.Kind == Check && o.Verdict == Violated:
		r.Wrong = fmt.Sprintf("%s is violated after %d states", o.Property, len(o.Trace))
	case r.Kind == Check:
	case o.Verdict != Violated:
		r.Wrong = fmt.Sprintf("%s is not refuted: %s after %d states", r.Property, o.Verdict, o.Distinct)
	case o.Property != r.Property && !(o.Property == "temporal" && slices.Contains(r.Config.Properties, r.Property)):
		r.Wrong = fmt.Sprintf("%s fails, and %s should", o.Property, r.Property)
	case r.Kind == Refute && r.Mutant.Steps > 0 && len(o.Trace) != r.Mutant.Steps:
		r.Wrong = fmt.Sprintf("%s is refuted after %d states, not %d as noted: is it another mistake now?", r.Property, len(o.Trace), r.Mutant.Steps)
	}
}

// picture is the module whose actions are counted as one: each of its steps is a move of
// a queue together with what clients believe.
const picture = "LineAbs"

// judgeAll looks at the runs beside each other: a mutant says nothing unless
// the same configuration holds without it, and an action that is never taken
// is one that nothing was checked for; the latter only when the runs are whole.
func judgeAll(runs []*Run, whole bool) (wrong []string) {
	sound, checked := map[string]bool{}, map[string]bool{}
	taken := map[string]int64{}
	for _, r := range runs {
		if r.Kind != Check {
			continue
		}
		checked[r.Config.Name] = true
		if r.Outcome.Verdict != Holds {
			continue
		}
		sound[r.Config.Name] = true
		for a, n := range r.Outcome.Actions {
			taken[a] += n.All
		}
	}
	for _, r := range runs {
		if r.Kind == Refute && r.Wrong == "" && checked[r.Config.Name] && !sound[r.Config.Name] {
			r.Wrong = "the specification fails without it, too"
		}
		if r.Wrong != "" {
			wrong = append(wrong, r.Name+": "+r.Wrong)
		}
	}
	for a, n := range taken {
		if module, ok := strings.CutSuffix(a, ".Next"); ok && module != picture {
			wrong = append(wrong, "actions of module "+module+" are counted as one, Next: one that is never taken would not be seen")
		}
		if n == 0 && whole {
			wrong = append(wrong, "action "+a+" was never taken in a run that holds")
		}
	}
	slices.SortFunc(wrong, strings.Compare)
	return wrong
}
