package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/safety/trace"
)

// batch returns two traces of two events each.
func batch() []*trace.Trace {
	e := trace.Event{Version: trace.Version, Kind: trace.Join, Seed: 5, Seq: 1, ID: "a:1", Units: 1, Limit: 1, TTL: 1e9, Wait: true, State: "held"}
	return []*trace.Trace{
		{Seed: 5, Name: "n", Events: []trace.Event{e, e}},
		{Seed: 6, Name: "n", Events: []trace.Event{e, e}},
	}
}

func TestPrintedTuplesAreReadInOnePiece(t *testing.T) {
	o := parse(t, "Starting...\n<< \"REFUSED\",\n   1,\n   2,\n   \"state\", \"gone\", \"held\",\n   <<2001>>,\n   (2001 :> 1 @@ 2002 :> 0) >>\n<<\"ACCEPTED\", 2, {\"Enters\",\n \"Watch\"}>>\n")
	if len(o.Printed) != 2 || !strings.HasPrefix(o.Printed[0], `<<"REFUSED", 1, 2,`) {
		t.Fatalf("%q", o.Printed)
	}
	a := newAccepted()
	refused, err := a.read(o.Printed, batch(), false)
	if err != nil {
		t.Fatal(err)
	}
	r := refused[0]
	if len(refused) != 1 || r.At != 1 || r.What != "state" || r.Spec != `"gone"` || r.Code != `"held"` || r.Queue != "<<2001>>" {
		t.Errorf("%+v", refused)
	}
	if len(a.Taken["Enters"]) != 1 || len(a.Taken["Watch"]) != 1 || len(a.Taken) != 2 {
		t.Errorf("%v", a.Taken)
	}
	for _, want := range []string{"seed 5", "event 2, join of a:1, is refused: state", ` > {"v":1,"e":"join"`} {
		if !strings.Contains(r.String(), want) {
			t.Errorf("%q is not in %s", want, r)
		}
	}
}

// TestTracesAreAcceptedByWordAlone checks that a trace about which the checker
// prints nothing, or both, is not taken for an accepted one.
func TestTracesAreAcceptedByWordAlone(t *testing.T) {
	accepted := func(i string) string { return `<<"ACCEPTED", ` + i + `, {"Enters"}>>` }
	refused := func(i, at string) string {
		return `<<"REFUSED", ` + i + `, ` + at + `, "state", "gone", "held", <<>>, <<0>>>>`
	}
	for what, printed := range map[string][]string{
		"nothing":                 nil,
		"one of two":              {accepted("1")},
		"both":                    {accepted("1"), refused("1", "2"), accepted("2")},
		"a trace that is not":     {accepted("1"), refused("3", "1")},
		"an event that is not":    {accepted("1"), refused("2", "3")},
		"something else":          {accepted("1"), accepted("2"), `<<"hello">>`},
		"a refusal without parts": {accepted("1"), `<<"REFUSED", 2, 1, "state", 1>>`},
	} {
		if r, err := newAccepted().read(printed, batch(), false); err == nil {
			t.Errorf("%s is read as %v", what, r)
		}
	}
	if _, err := newAccepted().read([]string{accepted("1"), accepted("2")}, batch(), false); err != nil {
		t.Error(err)
	}
}

// TestARefusalPrintsTheStep checks that a refusal names the seed, the event, what differs
// in it, and the events before.
func TestARefusalPrintsTheStep(t *testing.T) {
	all := batch()
	r, err := newAccepted().read([]string{
		`<<"ACCEPTED", 1, {"Enters"}>>`, `<<"REFUSED", 2, 2, "state", "gone", "held", <<2001>>, (2001 :> 7)>>`,
	}, all, false)
	if err != nil || r[1] == nil {
		t.Fatalf("%v: %v", r, err)
	}
	text := r[1].String()
	for _, want := range []string{
		fmt.Sprintf("seed %d", all[1].Seed), `event 2, join of a:1, is refused: state: the specification has "gone", the trace "held": the state of the ticket`,
		`the queue before it, as the specification has it: a:1 holds with grant 7`,
		"   " + all[1].Events[0].String(), " > " + all[1].Events[1].String(),
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
}

// TestEachConjunctHasWords checks that a refusal says in words what each part of module
// Trace asks.
func TestEachConjunctHasWords(t *testing.T) {
	text := modules(t)["Trace"] + modules(t)["Served"]
	used := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?:Same|Must)\("([^"]+)"`).FindAllStringSubmatch(text, -1) {
		used[m[1]] = true
		if conjuncts[m[1]] == "" {
			t.Errorf("%q has no words", m[1])
		}
	}
	for name := range conjuncts {
		if !used[name] {
			t.Errorf("%q is no part of module Trace", name)
		}
	}
}

// TestOneWayThroughALooseTraceIsEnough checks what is read where TLC goes several ways
// through a trace.
func TestOneWayThroughALooseTraceIsEnough(t *testing.T) {
	refused := func(i, at string) string {
		return `<<"REFUSED", ` + i + `, ` + at + `, "state", "gone", "held", <<>>, <<0>>>>`
	}
	printed := []string{refused("1", "2"), `<<"ACCEPTED", 1, {"Enters"}>>`, refused("2", "1"), refused("2", "2"), refused("2", "1")}
	r, err := newAccepted().read(printed, batch(), true)
	if err != nil || len(r) != 1 || r[1] == nil || r[1].At != 1 {
		t.Errorf("%v %v", r, err)
	}
	if _, err := newAccepted().read(printed[:2], batch(), true); err == nil {
		t.Error("a trace of which nothing was printed is accepted")
	}
}

// TestSilentActionsCountByTheFirstWay checks that a silent action counts for a trace if the
// first way that accepts it takes it: the others may take what is not needed.
func TestSilentActionsCountByTheFirstWay(t *testing.T) {
	all, a := batch(), newAccepted()
	if _, err := a.read([]string{
		`<<"ACCEPTED", 1, {"Enters"}>>`, `<<"ACCEPTED", 2, {"Enters", "Lapse"}>>`, `<<"ACCEPTED", 1, {"Enters", "Arrive"}>>`,
	}, all, true); err != nil {
		t.Fatal(err)
	}
	if took := a.silently([]string{"Arrive", "Lapse"}); took != "Lapse 1" || a.Taken["Lapse"][0] != all[1] {
		t.Errorf("%q: %v", took, a.Taken)
	}
}

// TestSilentActionsAreThoseBesideNext checks which actions have to be needed by a script, and
// that none of them is asked for by the events of schedules.
func TestSilentActionsAreThoseBesideNext(t *testing.T) {
	silent, err := (&Checker{Modules: "../../proof"}).silentActions()
	if err != nil || !slices.Contains(silent, "Lapse") || !slices.Contains(silent, "Hears") {
		t.Fatalf("%q, %v", silent, err)
	}
	parts, err := takenParts("../../proof/Trace.tla")
	if err != nil {
		t.Fatal(err)
	}
	for _, action := range silent {
		if slices.Contains(parts, action) {
			t.Errorf("schedules have to take %s", action)
		}
	}
	if silent, err := silentActions("\nSpec == Init /\\ [][Next]_vars\n"); err == nil {
		t.Errorf("a module without any has %q", silent)
	}
}

// TestATraceWhoseCheckIsStoppedIsUndecided checks that a trace is neither accepted nor refused
// if its check was stopped, but for one that was accepted until then.
func TestATraceWhoseCheckIsStoppedIsUndecided(t *testing.T) {
	for _, c := range []struct {
		printed   []string
		undecided int
	}{
		{nil, 1},
		{[]string{`<<"REFUSED", 1, 2, "state", "gone", "held", <<>>, <<>>>>`, `<<"REFUSED", 1, `}, 1},
		{[]string{`<<"ACCEPTED", 1, {"Enters"}>>`, `<<"REFUSED", 1, `}, 0},
	} {
		a := newAccepted()
		if err := (&Checker{}).unended(t.Context(), a, c.printed, "x", 1, batch()[:1], false, ""); err != nil {
			t.Fatal(err)
		}
		if a.Traces != 1 || a.Events != 2 || len(a.Refused) != 0 || len(a.Undecided) != c.undecided || len(a.Taken["Enters"]) != 1-c.undecided {
			t.Errorf("%q: %+v", c.printed, a)
		}
	}
	if text := undecided("etcd", batch()[0]); !strings.Contains(text, `etcd: seed 5, lock "n": not decided`) {
		t.Error(text)
	}
}

func TestBatchesHoldAllTraces(t *testing.T) {
	all := []*trace.Trace{}
	for range 50 {
		all = append(all, &trace.Trace{Events: make([]trace.Event, batchEvents/20)})
	}
	n := 0
	for _, part := range batches(all) {
		if len(part) > 20 || len(part) == 0 {
			t.Errorf("a part of %d traces", len(part))
		}
		n += len(part)
	}
	if n != len(all) {
		t.Errorf("%d of %d traces", n, len(all))
	}
}

func TestPartsOfActionsAreFound(t *testing.T) {
	parts, err := takenParts("../../proof/Trace.tla")
	if err != nil {
		t.Fatal(err)
	}
	all := strings.Join(parts, " ")
	if want := "Abandons BreaksNone BreaksOne Close Ended Enters Failed Gap GotGranted GotHandedOn GotShared HeardGone HeardHeld HoldDone HoldDoneLost HoldDoneUnsure Inspect LeavesPending LeftBefore LockDone Names Out OutLost PushGone PushHeld Refused RefusesUpgrade Releases RenewGone RenewHere Repeats Shares StaysGone Step TakesOver Told Traits TryGone TryHeld Watch"; all != want {
		t.Errorf("parts are %s", all)
	}
}

// TestPlantedMistakesOfRedLockFit checks that the text which a mistake changes is there
// once.
func TestPlantedMistakesOfRedLockFit(t *testing.T) {
	for _, bug := range redlockBugs {
		if n := strings.Count(readFile(t, "../../"+bug.file), bug.is); n != 1 {
			t.Errorf("%s has %q %d times", bug.file, bug.is, n)
		}
	}
}

// TestPlantedMistakesOfTheCoreFit checks that the text which a mistake changes is
// there once.
func TestPlantedMistakesOfTheCoreFit(t *testing.T) {
	for _, bug := range coreBugsOf(buildSchedules + 1) {
		if n := strings.Count(readFile(t, "../../"+bug.file), bug.is); n != 1 {
			t.Errorf("%s has %q %d times", bug.file, bug.is, n)
		}
	}
}

func readFile(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// recordedRuns returns the runs of two schedules, from seed 5 on, each of two clients.
func recordedRuns() []trace.Event {
	var all []trace.Event
	for seed := uint64(5); seed < 7; seed++ {
		join := trace.Event{Kind: trace.Join, Client: 1, Name: "n", ID: "a:1", Units: 1, Limit: 1, TTL: 1e9, Wait: true, State: "held"}
		for i, e := range []trace.Event{join, {Kind: trace.Inspect, Client: 2, Name: "n"}, {Kind: trace.Close, Client: 1}, {Kind: trace.Close, Client: 2}} {
			e.Version, e.Seed, e.Seq = trace.Version, seed, int64(i+1)
			all = append(all, e)
		}
	}
	return all
}

// TestARecordThatIsNotWholeIsRefused checks that the lane of traces fails where the record
// of its schedules lacks something, although what is there could be accepted.
func TestARecordThatIsNotWholeIsRefused(t *testing.T) {
	lines := func(events []trace.Event) []string {
		var text strings.Builder
		if err := trace.Write(&text, events); err != nil {
			t.Fatal(err)
		}
		return strings.SplitAfter(strings.TrimSuffix(text.String(), "\n"), "\n")
	}
	all := lines(recordedRuns())
	swapped := slices.Clone(all)
	swapped[1], swapped[2] = swapped[2], swapped[1]
	for what, test := range map[string]struct {
		text string
		want string
	}{
		"whole":                        {strings.Join(all, ""), ""},
		"a file without events":        {"", "no event was recorded"},
		"cut in the last line":         {strings.TrimSuffix(strings.Join(all, ""), "}"), "EOF"},
		"cut before the last line":     {strings.Join(all[:7], ""), "client 2 is not closed"},
		"cut after a run":              {strings.Join(all[:4], ""), "1 runs of 2 schedules"},
		"without the first run":        {strings.Join(all[4:], ""), "1 runs of 2 schedules"},
		"the same run twice":           {strings.Join(all[4:], "") + "\n" + strings.Join(all[4:], ""), "of seed 6 is where that of seed 5"},
		"without an event":             {strings.Join(slices.Delete(slices.Clone(all), 1, 2), ""), "event 3 of seed 5 is where event 2"},
		"with an event twice":          {strings.Join(slices.Insert(slices.Clone(all), 2, all[1]), ""), "event 2 of seed 5 is where event 3"},
		"two events swapped":           {strings.Join(swapped, ""), "event 3 of seed 5 is where event 2"},
		"an unknown event":             {strings.Replace(strings.Join(all, ""), `"e":"inspect"`, `"e":"peek"`, 1), `"peek" is no event`},
		"an unknown field":             {strings.Replace(strings.Join(all, ""), `"e":"inspect"`, `"e":"inspect","why":1`, 1), "unknown field"},
		"another version":              {strings.Replace(strings.Join(all, ""), `"v":1`, `"v":2`, 1), "version is 2"},
		"a recorder of no lock at all": {strings.Join(lines(withoutLocks(recordedRuns())), ""), "no event is about a lock"},
	} {
		name := filepath.Join(t.TempDir(), "memory.jsonl")
		if err := os.WriteFile(name, []byte(test.text), 0o600); err != nil {
			t.Fatal(err)
		}
		traces, err := readTraces(name, func(runs [][]trace.Event) error { return whole(runs, 5, 2) })
		switch {
		case test.want == "" && (err != nil || len(traces) != 2):
			t.Errorf("%s: %d traces: %v", what, len(traces), err)
		case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
			t.Errorf("%s: %d traces: %v", what, len(traces), err)
		}
	}
}

// withoutLocks returns events whose requests are those of a client that only watches.
func withoutLocks(events []trace.Event) []trace.Event {
	for i := range events {
		if e := &events[i]; e.Kind != trace.Close {
			*e = trace.Event{Version: e.Version, Seed: e.Seed, Seq: e.Seq, Kind: trace.Watch, Client: e.Client}
		}
	}
	return events
}
