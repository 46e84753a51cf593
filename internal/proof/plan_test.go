package main

import (
	"strings"
	"testing"
)

func door(t *testing.T, expect string) *Config {
	t.Helper()
	c, err := parseConfig("Door."+expect, strings.Replace(small, "lane: build", "lane: build\n\\* expect: "+expect, 1))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestPlanChecksEachWitnessByItself(t *testing.T) {
	late := door(t, "holds")
	late.Name, late.Lane = "Door.late", "release"
	configs := []*Config{door(t, "holds"), door(t, "violated"), late}
	mutants := []Mutant{
		{Name: "crowd", Config: "Door.holds", Bug: "crowd", Property: "Few", Steps: 6, Lane: "build"},
		{Name: "late crowd", Config: "Door.late", Bug: "crowd", Property: "Few", Steps: 6, Lane: "build"},
	}
	for release, want := range map[bool]string{
		false: "Door.holds; Door.violated Few; Door.violated Fewer; Door.violated Filled; Door.holds with crowd",
		true:  "Door.holds; Door.violated Few; Door.violated Fewer; Door.violated Filled; Door.late; Door.holds with crowd; Door.late with late crowd",
	} {
		runs, err := plan(configs, mutants, release, false)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, r := range runs {
			names = append(names, r.Name)
		}
		if got := strings.Join(names, "; "); got != want {
			t.Errorf("release %v: %s", release, got)
		}
	}
}

func TestRunsAreJudged(t *testing.T) {
	c := door(t, "holds")
	large := door(t, "holds")
	large.Walks, large.Steps = 100, 20
	way := make([]Step, 6)
	mutant := &Mutant{Name: "crowd", Steps: 6}
	for name, test := range map[string]struct {
		run  Run
		want string
	}{
		"holds":              {Run{Kind: Check, Outcome: &Outcome{Verdict: Holds}}, ""},
		"not ended":          {Run{Kind: Check, Outcome: &Outcome{Verdict: Unended, Distinct: 7, Depth: 3}}, "no violation in 7 states to depth 3, which proves nothing"},
		"walked":             {Run{Kind: Check, Config: large, Outcome: &Outcome{Verdict: Walked, Generated: 7}}, ""},
		"walked, not all":    {Run{Kind: Check, Config: c, Outcome: &Outcome{Verdict: Walked}}, "with 0 walks"},
		"not walked":         {Run{Kind: Check, Config: large, Outcome: &Outcome{Verdict: Holds}}, "with 100 walks"},
		"violated":           {Run{Kind: Check, Outcome: &Outcome{Verdict: Violated, Property: "Few"}}, "Few is violated"},
		"not checked":        {Run{Kind: Check, Outcome: &Outcome{Reason: "no memory"}}, "no memory"},
		"refuted":            {Run{Kind: Refute, Mutant: mutant, Property: "Few", Outcome: &Outcome{Verdict: Violated, Property: "Few", Trace: way}}, ""},
		"refuted by another": {Run{Kind: Refute, Mutant: mutant, Property: "Few", Outcome: &Outcome{Verdict: Violated, Property: "Fewer", Trace: way}}, "Fewer fails, and Few should"},
		"refuted later":      {Run{Kind: Refute, Mutant: mutant, Property: "Few", Outcome: &Outcome{Verdict: Violated, Property: "Few", Trace: way[:5]}}, "after 5 states, not 6"},
		"refuted in time":    {Run{Kind: Refute, Mutant: &Mutant{}, Property: "Filled", Outcome: &Outcome{Verdict: Violated, Property: "temporal", Trace: way}}, ""},
		"not refuted":        {Run{Kind: Refute, Mutant: mutant, Property: "Few", Outcome: &Outcome{Verdict: Holds}}, "Few is not refuted"},
		"refuted too slowly": {Run{Kind: Refute, Mutant: mutant, Property: "Few", Outcome: &Outcome{Verdict: Unended}}, "Few is not refuted"},
		"reachable":          {Run{Kind: Witness, Property: "Few", Outcome: &Outcome{Verdict: Violated, Property: "Few", Trace: way}}, ""},
		"not reachable":      {Run{Kind: Witness, Property: "Few", Outcome: &Outcome{Verdict: Holds}}, "Few is not refuted"},
	} {
		r := test.run
		if r.Config == nil {
			r.Config = c
		}
		r.judge()
		if (test.want == "") != (r.Wrong == "") || !strings.Contains(r.Wrong, test.want) {
			t.Errorf("%s: %q", name, r.Wrong)
		}
	}
}

func TestAMutantOfAnUnsoundSpecificationCountsForNothing(t *testing.T) {
	c := door(t, "holds")
	runs := []*Run{
		{Name: "Door.holds", Kind: Check, Config: c, Outcome: &Outcome{Verdict: Violated}, Wrong: "it fails"},
		{Name: "Door.holds with crowd", Kind: Refute, Config: c, Outcome: &Outcome{Verdict: Violated}},
	}
	wrong := judgeAll(runs, true)
	if len(wrong) != 2 || !strings.Contains(wrong[0], "fails without it") {
		t.Errorf("%q", wrong)
	}
}

func TestAnActionThatIsNeverTakenIsWrong(t *testing.T) {
	c := door(t, "holds")
	taken := func(open, lift int64) *Run {
		return &Run{Name: c.Name, Kind: Check, Config: c, Outcome: &Outcome{Verdict: Holds,
			Actions: map[string]Taken{"Door.Open": {0, open}, "Door.Lift": {0, lift}}}}
	}
	if wrong := judgeAll([]*Run{taken(3, 0), taken(0, 0)}, true); len(wrong) != 1 || !strings.Contains(wrong[0], "Door.Lift") {
		t.Errorf("%q", wrong)
	}
	if wrong := judgeAll([]*Run{taken(3, 0), taken(0, 2)}, true); len(wrong) != 0 {
		t.Errorf("%q", wrong)
	}
	next := taken(3, 1)
	next.Outcome.Actions["Door.Next"], next.Outcome.Actions["LineAbs.Next"] = Taken{0, 5}, Taken{0, 5}
	if wrong := judgeAll([]*Run{next}, true); len(wrong) != 1 || !strings.Contains(wrong[0], "actions of module Door are counted as one") {
		t.Errorf("%q", wrong)
	}
	if wrong := judgeAll([]*Run{taken(3, 0)}, false); len(wrong) != 0 {
		t.Errorf("a part of the runs: %q", wrong)
	}
}

func TestResultNamesWhatIsWrong(t *testing.T) {
	c := door(t, "holds")
	runs := []*Run{
		{Name: "Door.holds", Kind: Check, Config: c, Outcome: &Outcome{Verdict: Unended, Distinct: 7}, Wrong: "it did not end"},
		{Name: "x", Kind: Refute, Config: c, Mutant: &Mutant{Name: "crowd", Was: "seen"}, Property: "Few", Outcome: &Outcome{Verdict: Violated}},
	}
	var b strings.Builder
	writeResult(&b, runs, []string{"Door.holds: it did not end"}, "build")
	for _, want := range []string{"**WRONG**: it did not end", "| crowd | seen | Door.holds | Few |", "## Wrong\n\n- Door.holds: it did not end"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q lacks in\n%s", want, b.String())
		}
	}
}
