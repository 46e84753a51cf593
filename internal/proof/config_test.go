package main

import (
	"strings"
	"testing"
)

const small = `\* A door.
\* lane: build
SPECIFICATION Spec
CONSTANTS
  Most = 3
  Bug = "none"
INVARIANTS
  Few
  Fewer
PROPERTIES
  Filled
CHECK_DEADLOCK FALSE
`

func TestConfigReadsWhatTLCReads(t *testing.T) {
	c, err := parseConfig("Door.small", small)
	if err != nil {
		t.Fatal(err)
	}
	if c.Module() != "Door" || c.About != "A door." || c.Lane != "build" || c.Expect != "holds" {
		t.Errorf("%+v", c)
	}
	uncounted, err := parseConfig("Door.small", strings.Replace(small, "lane: build", "lane: build\n\\* actions: not counted", 1))
	if err != nil || !uncounted.Uncounted || c.Uncounted {
		t.Errorf("%+v: %v", uncounted, err)
	}
	one, err := c.only("Fewer")
	if err != nil {
		t.Fatal(err)
	}
	one, err = one.with("Most", "4")
	if err != nil {
		t.Fatal(err)
	}
	want := "SPECIFICATION Spec\nCONSTANTS\n  Most = 4\n  Bug = \"none\"\nINVARIANT Fewer\nCHECK_DEADLOCK FALSE\n"
	if one.text() != want {
		t.Errorf("%s", one.text())
	}
	if c.Constants[0].Value != "3" || len(c.Invariants) != 2 {
		t.Error("the configuration itself was changed")
	}
}

func TestConfigReadsOperatorsThatReplaceOthers(t *testing.T) {
	c, err := parseConfig("Door.small", strings.Replace(small, "  Most = 3\n", "  Most <- Three\n", 1))
	if err != nil {
		t.Fatal(err)
	}
	if want := "CONSTANTS\n  Bug = \"none\"\n  Most <- Three\n"; !strings.Contains(c.text(), want) {
		t.Errorf("%s", c.text())
	}
}

func TestConfigRefusesWhatItDoesNotUnderstand(t *testing.T) {
	for _, change := range [][2]string{
		{"lane: build", "lane: some day"},
		{`\* lane: build`, ""},
		{`\* A door.`, ""},
		{"SPECIFICATION Spec", ""},
		{"SPECIFICATION Spec", "INIT Init"},
		{"  Few\n  Fewer\n", "  Few, Fewer\n"},
		{"Most = 3", "Most <= Three"},
		{"INVARIANTS\n  Few\n  Fewer\nPROPERTIES\n  Filled\n", ""},
		{"CHECK_DEADLOCK", "SYMMETRY Turns\nCHECK_DEADLOCK"},
		{"CHECK_DEADLOCK", "CONSTRAINT Small\nCHECK_DEADLOCK"},
		{"INVARIANTS\n  Few", "INVARIANTS Few"},
		{"lane: build", "lane: build\n\\* expect: luck"},
	} {
		text := strings.Replace(small, change[0], change[1], 1)
		if text == small {
			t.Fatalf("%q is not in the text", change[0])
		}
		if c, err := parseConfig("Door.small", text); err == nil {
			t.Errorf("%q instead of %q is read: %+v", change[1], change[0], c)
		}
	}
}

func TestMutantsRefuseWhatCannotBeRun(t *testing.T) {
	c, err := parseConfig("Door.small", small)
	if err != nil {
		t.Fatal(err)
	}
	reach, err := parseConfig("Door.reach", strings.Replace(small, "lane: build", "lane: build\n\\* expect: violated", 1))
	if err != nil {
		t.Fatal(err)
	}
	good := `{"name": "crowd", "was": "seen", "cfg": "Door.small", "bug": "crowd", "property": "Few", "steps": 6, "lane": "build"}`
	if _, err := parseMutants([]byte("["+good+"]"), []*Config{c, reach}); err != nil {
		t.Error(err)
	}
	for _, change := range [][2]string{
		{`"cfg": "Door.small"`, `"cfg": "Door.large"`},
		{`"cfg": "Door.small"`, `"cfg": "Door.reach"`},
		{`"bug": "crowd"`, `"change": {"Least": "0"}`},
		{`"bug": "crowd", `, ``},
		{`"property": "Few"`, `"property": "Many"`},
		{`"name": "crowd"`, `"name": ""`},
		{`"was": "seen"`, `"was": ""`},
		{`"lane": "build"`, `"lane": ""`},
		{`"steps"`, `"states"`},
		{`"steps": 6, `, ``},
		{good, good + "," + good},
	} {
		text := strings.Replace(good, change[0], change[1], 1)
		if _, err := parseMutants([]byte("["+text+"]"), []*Config{c, reach}); err == nil {
			t.Errorf("%q instead of %q is taken", change[1], change[0])
		}
	}
}
