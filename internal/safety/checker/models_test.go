package checker

import (
	"fmt"
	"strings"
	"testing"

	"github.com/anishathalye/porcupine"
)

// TestModelsAllowLegalSteps checks the steps that each kind of lock allows and
// refuses. A step is written as owner, act, units and token: "a+1@5" takes,
// "a-" releases.
func TestModelsAllowLegalSteps(t *testing.T) {
	ownerAware := model{limit: 1}
	reentrant := model{limit: 1, reentrant: true}
	fenced := model{limit: 1, fenced: true}
	reentrantFenced := model{limit: 1, reentrant: true, fenced: true}
	rw := model{limit: 1 << 30, fenced: true}
	semaphore := model{limit: 3}
	const all = 1 << 30
	for _, tt := range []struct {
		name  string
		m     model
		steps string
		ok    bool
	}{
		{"owner-aware", ownerAware, "a+1 a- b+1 b-", true},
		{"owner-aware: two hold", ownerAware, "a+1 b+1", false},
		{"owner-aware: a stranger releases", ownerAware, "a+1 b-", false},
		{"owner-aware: nobody holds", ownerAware, "a-", false},
		{"owner-aware: twice", ownerAware, "a+1 a+1", false},
		{"owner-aware: tokens are no matter", ownerAware, "a+1@9 a- b+1@3", true},
		{"reentrant", reentrant, "a+1 a+1 a- a- b+1", true},
		{"reentrant: released too often", reentrant, "a+1 a+1 a- a- a-", false},
		{"reentrant: free too early", reentrant, "a+1 a+1 a- b+1", false},
		{"fenced", fenced, "a+1@5 a- b+1@6", true},
		{"fenced: equal", fenced, "a+1@5 a- b+1@5", false},
		{"fenced: back", fenced, "a+1@5 a- b+1@4", false},
		{"reentrant fenced", reentrantFenced, "a+1@5 a+1@5 a- a- b+1@6", true},
		{"reentrant fenced: nested grows", reentrantFenced, "a+1@5 a+1@6", false},
		{"reentrant fenced: again with the same", reentrantFenced, "a+1@5 a- a+1@5", false},
		{"rw: readers together", rw, "a+1@5 b+1@5 a- b-", true},
		{"rw: reader beside writer", rw, fmt.Sprintf("a+%d@5 b+1@6", all), false},
		{"rw: writer beside reader", rw, fmt.Sprintf("a+1@5 b+%d@6", all), false},
		{"rw: writer after readers", rw, fmt.Sprintf("a+1@5 b+1@5 a- b- c+%d@6 c- d+1@7", all), true},
		{"rw: writer not above readers", rw, fmt.Sprintf("a+1@5 a- c+%d@5", all), false},
		{"rw: reader not above the writer", rw, fmt.Sprintf("c+%d@5 c- a+1@5", all), false},
		{"semaphore", semaphore, "a+2@9 b+1@3 a- c+2@3", true},
		{"semaphore: too many", semaphore, "a+2 b+2", false},
		{"semaphore: one left", semaphore, "a+2 b+1 c+1", false},
	} {
		t.Run(strings.ReplaceAll(tt.name, " ", "_"), func(t *testing.T) {
			var hist []porcupine.Operation
			for i, s := range strings.Fields(tt.steps) {
				a := lockAct{do: "free", owner: Key{P: int(s[0])}}
				if s[1] == '+' {
					a.do = "take"
					if n, err := fmt.Sscanf(s[2:], "%d@%d", &a.units, &a.token); n == 0 {
						t.Fatal(err)
					}
				}
				hist = append(hist, porcupine.Operation{Input: a, Call: int64(2 * i), Return: int64(2*i + 1)})
			}
			if got := porcupine.CheckOperations(tt.m.porcupine(), hist); got != tt.ok {
				t.Errorf("%s: %v, want %v", tt.steps, got, tt.ok)
			}
		})
	}
}

// TestUnknownActsMayHappenLaterOrNever checks acts of unknown outcome: at any
// later time, or not at all.
func TestUnknownActsMayHappenLaterOrNever(t *testing.T) {
	m := model{limit: 1, fenced: true}
	a, b := Key{P: 1}, Key{P: 2}
	take := func(who Key, token uint64, from, to int64) porcupine.Operation {
		return porcupine.Operation{Input: lockAct{"take", who, 1, token}, Call: from, Return: to}
	}
	maybe := func(do string, who Key, from int64) porcupine.Operation {
		return porcupine.Operation{Input: lockAct{"perhaps " + do, who, 1, 0}, Call: from, Return: 1 << 62}
	}
	for name, tt := range map[string]struct {
		hist []porcupine.Operation
		ok   bool
	}{
		"it released before the next":  {[]porcupine.Operation{take(a, 1, 1, 2), maybe("free", a, 3), take(b, 2, 5, 6)}, true},
		"it could not have yet":        {[]porcupine.Operation{take(a, 1, 1, 2), maybe("free", a, 7), take(b, 2, 5, 6)}, false},
		"it never took it":             {[]porcupine.Operation{maybe("take", a, 1), take(b, 2, 5, 6)}, true},
		"it took it and let it go":     {[]porcupine.Operation{maybe("take", a, 1), maybe("free", a, 1), take(b, 2, 5, 6)}, true},
		"tokens count for others also": {[]porcupine.Operation{take(a, 3, 1, 2), maybe("free", a, 3), take(b, 2, 5, 6)}, false},
	} {
		if got := porcupine.CheckOperations(m.porcupine(), tt.hist); got != tt.ok {
			t.Errorf("%s: %v, want %v", name, got, tt.ok)
		}
	}
}

// TestNested checks that a nested hold takes no units of its own, has the token
// of the first hold, and still holds when the first has been released.
func TestNested(t *testing.T) {
	in := func(e *Event) { e.In = 1 }
	nest := func(tok uint64, out, in2 int64) script {
		return script{}.at(1, 0, 1, Ask).at(2, 0, 1, Got, token(5), end(900)).
			at(3, 0, 2, Ask, in).at(4, 0, 2, Got, token(tok), end(900)).
			at(out, 0, 1, Out, end(900)).at(out+1, 0, 1, Done).at(in2, 0, 2, Out, end(900)).at(in2+1, 0, 2, Done)
	}
	for name, tt := range map[string]struct {
		history script
		want    string
	}{
		"in order":               {nest(5, 9, 6).hold(1, 1, 8, 11, 12, 6), ""},
		"the first one first":    {nest(5, 6, 9).hold(1, 1, 8, 11, 12, 6), ""},
		"another while it lasts": {nest(5, 6, 9).hold(1, 1, 3, 8, 12, 6), "C1 C5"},
		"with another token":     {nest(6, 9, 6).hold(1, 1, 8, 11, 12, 7), "C3 C5"},
	} {
		if got := found(tt.history); !sameSet(got, strings.Fields(tt.want)) {
			t.Errorf("%s: found %q, want %q", name, got, tt.want)
		}
	}
}
