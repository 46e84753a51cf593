package main

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const doors = `------ MODULE Doors ------
\* Nobody /\ opens.
Shut == door = "shut"
Moves(d) == door' = d
Open(p) == \* a person
  /\ Shut /\ p \notin inside   \* or /\ leaves
  /\ key[<<p, 1>>] > 0 /\ Moves("open") /\ UNCHANGED inside
Enter(p) ==
  LET free == 3 IN
  /\ \/ Cardinality(inside) < free /\ ~Shut
     \/ p = 1 /\ Moves("shut")
  /\ \A q \in inside :
       q < p
  /\ inside' = inside \cup {p}
Reads == door = "open" /\ Shut
Next == \E p \in People : Open(p) \/ Enter(p)
`

// TestGuardsAreTheConditionsOfActions checks which conditions are taken away: those of
// actions, each in one line, and none that says something of the next state.
func TestGuardsAreTheConditionsOfActions(t *testing.T) {
	var is []string
	for _, g := range guards(doors) {
		is = append(is, g.Action+" "+g.Text)
	}
	want := []string{"Open Shut", `Open p \notin inside`, "Open key[<<p, 1>>] > 0", "Enter Cardinality(inside) < free", "Enter ~Shut", "Enter p = 1"}
	if !slices.Equal(is, want) {
		t.Errorf("%q, want %q", is, want)
	}
	line := `  /\ Shut /\ TRUE   \* or /\ leaves`
	if text := guards(doors)[1].without(doors); !slices.Contains(strings.Split(text, "\n"), line) {
		t.Errorf("%q is not in\n%s", line, text)
	}
}

// TestEveryModuleHasGuards checks that the actions of a module are found: its Next names
// them. The page counts its guards, and all of them.
func TestEveryModuleHasGuards(t *testing.T) {
	all, page := modules(t), readFile(t, "../../docs/proof/worth.md")
	sum := 0
	for _, name := range []string{"Claim", "Failover", "HandOver", "Line", "Nodes", "Owner", "Stock"} {
		n := len(guards(all[name]))
		if sum += n; n < 10 {
			t.Errorf("%d guards in module %s", n, name)
		}
		row := regexp.MustCompile(`\| ` + name + ` \| \d+ of (\d+) \|`).FindStringSubmatch(page)
		if row != nil && row[1] != strconv.Itoa(n) {
			t.Errorf("%s has %d guards, and the page says %s", name, n, row[1])
		}
	}
	if want := fmt.Sprintf("%d in the seven modules", sum); !strings.Contains(page, want) {
		t.Errorf("the page does not say %q", want)
	}
}
