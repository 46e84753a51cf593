package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestPicturesAreOfTheirCounterexamples checks, without the checker, that each
// picture is drawn of the counterexample beside it, that this is of the
// configuration that names it, and that the page shows both.
func TestPicturesAreOfTheirCounterexamples(t *testing.T) {
	configs, _ := specs(t)
	page := readFile(t, "../../docs/proof/counterexamples.md")
	want := map[string]bool{}
	for _, c := range configs {
		if c.Picture == "" {
			continue
		}
		name := filepath.Join("../..", pictures, c.Picture)
		want[c.Picture+".txt"], want[c.Picture+".svg"] = true, true
		s, err := parseStory(readFile(t, name+".txt"))
		if err != nil {
			t.Errorf("%s: %v", c.Picture, err)
			continue
		}
		if properties := append(append([]string(nil), c.Invariants...), c.Properties...); s.Config != c.Name || s.Property != properties[0] {
			t.Errorf("%s is of property %s in %s, not of %q in %s", c.Picture, s.Property, s.Config, properties, c.Name)
		}
		if !bytes.Equal(draw(s), []byte(readFile(t, name+".svg"))) {
			t.Errorf("%s.svg is not the picture of %s.txt: make proof-pictures", c.Picture, c.Picture)
		}
		if s.text() != readFile(t, name+".txt") {
			t.Errorf("%s.txt has more than a counterexample", c.Picture)
		}
		for _, link := range []string{"](pictures/" + c.Picture + ".svg)", "](pictures/" + c.Picture + ".txt)"} {
			if !strings.Contains(page, link) {
				t.Errorf("the page has no link %s", link)
			}
		}
	}
	files, err := os.ReadDir(filepath.Join("../..", pictures))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if !want[f.Name()] {
			t.Errorf("%s is of no configuration", f.Name())
		}
	}
	if len(want) < 14 {
		t.Errorf("%d files, fewer than seven counterexamples", len(want))
	}
}

// TestCounterexamplesAreMeasured checks that each section with a picture tells of a
// run that showed the same: one with a seed, of docs/safety.md, or a test.
func TestCounterexamplesAreMeasured(t *testing.T) {
	page, safety := readFile(t, "../../docs/proof/counterexamples.md"), readFile(t, "../../docs/safety.md")
	sections := strings.Split(page, "\n## ")[1:]
	if len(sections) < 7 {
		t.Errorf("%d sections, fewer than seven counterexamples", len(sections))
	}
	for _, section := range sections {
		title, _, _ := strings.Cut(section, "\n")
		if !strings.Contains(section, "](pictures/") || !strings.Contains(section, "Measured") {
			t.Errorf("%q has no picture, or no run", title)
		}
		if bad := unmeasured(t, section, safety); bad != "" {
			t.Errorf("%q: %s", title, bad)
		}
	}
	for what, section := range map[string]string{
		"nothing":        "Measured: somewhere.",
		"an unused seed": "Measured: seed 999999.",
		"no such test":   "Measured: `redlock.TestNothingOfTheKind`.",
	} {
		if unmeasured(t, section, safety) == "" {
			t.Errorf("a section with %s passes", what)
		}
	}
}

// measuredBy matches a seed of a run, or a test with the last part of its package.
var measuredBy = regexp.MustCompile("seed (\\d+)|`(\\w+)\\.(Test\\w+)`")

// unmeasured returns what is wrong with the runs of which a section tells.
func unmeasured(t *testing.T, section, safety string) string {
	t.Helper()
	runs := measuredBy.FindAllStringSubmatch(section, -1)
	if len(runs) == 0 {
		return "there is no seed and no test"
	}
	for _, run := range runs {
		if seed := run[1]; seed != "" {
			if !strings.Contains(safety, "| "+seed+" |") {
				return "docs/safety.md has no run of seed " + seed
			}
			continue
		}
		var files []string
		found := false
		for _, pattern := range []string{"../../*_test.go", "../../*/*_test.go", "../../*/*/*_test.go", "../../*/*/*/*_test.go"} {
			more, err := filepath.Glob(pattern)
			if err != nil {
				t.Fatal(err)
			}
			files = append(files, more...)
		}
		for _, f := range files {
			folder := filepath.Base(filepath.Dir(f))
			if folder == ".." {
				folder = "holdfast"
			}
			found = found || folder == run[2] && strings.Contains(readFile(t, f), "func "+run[3]+"(")
		}
		if !found {
			return "package " + run[2] + " has no test " + run[3]
		}
	}
	return ""
}

func story() *Story {
	return &Story{Config: "Failover.test", Property: "Exclusion", Lanes: lanesOf["Failover"], Steps: []StoryStep{
		{Action: "Init", Shows: []string{"-", "-", "a | b", "<c>"}, State: "/\\ x = 1"},
		{Action: "Join", Shows: []string{"holds, token 1", "-", "a", "c"}, State: "/\\ x = 2\n/\\ y = 3"},
		{Action: "Answer", Shows: []string{"holds, token 1", "holds, token 2", "a", "c"}, State: "/\\ x = 2"},
	}}
}

func TestStoriesAreReadAsTheyAreWritten(t *testing.T) {
	s, err := parseStory(story().text())
	if err != nil {
		t.Fatal(err)
	}
	if s.text() != story().text() || len(s.Steps) != 3 || s.Steps[1].State != "/\\ x = 2\n/\\ y = 3" {
		t.Errorf("%+v", s)
	}
	text := story().text()
	for what, wrong := range map[string]string{
		"no property":      strings.TrimPrefix(text, "The"),
		"another lane":     strings.Replace(text, "* client 2:", "* client 3:", 1),
		"a lane missing":   strings.Replace(text, "\\* client 2: -\n", "", 1),
		"an unknown step":  strings.Replace(text, "State 2: Join", "State 2: Jump", 1),
		"no states at all": text[:strings.Index(text, "\nState 1")],
	} {
		if _, err := parseStory(wrong); err == nil {
			t.Errorf("a story with %s is read", what)
		}
	}
}

func TestPicturesShowTwoWhoHold(t *testing.T) {
	s := story()
	if a, b := barOf(s, 1, 0), barOf(s, 2, 0); a == "" || b == "" || a == b || barOf(s, 2, 1) != b || barOf(s, 2, 2) != "" || barOf(s, 0, 0) != "" {
		t.Errorf("one holds: %q, two do: %q", a, b)
	}
	svg := string(draw(s))
	for _, want := range []string{"&lt;c&gt;", "2 its answer arrives", `font-weight="bold">holds, token 2<`} {
		if !strings.Contains(svg, want) {
			t.Errorf("the picture has no %q", want)
		}
	}
}

func TestShownLanesAreRead(t *testing.T) {
	n, lanes, err := shown(`<<"SHOWS", 12, <<<<"holds,", "token", 1, "|", 1, "ticks", "left">>, <<a, "waits", ",", 2, "ticks", "left">>, <<"-">>>>>>`)
	if want := "holds, token 1 | 1 tick left; a waits, 2 ticks left; -"; err != nil || n != 12 || strings.Join(lanes, "; ") != want {
		t.Errorf("%d %q %v", n, lanes, err)
	}
	if _, _, err := shown(`<<"REFUSED", 1>>`); err == nil {
		t.Error("something else is read")
	}
}

// TestPicturesAreOfOneViolation checks that a configuration with a picture has the
// one property of which it shows the counterexample.
func TestPicturesAreOfOneViolation(t *testing.T) {
	for what, changed := range map[string]string{
		"holds":          "\\* lane: build\n\\* picture: door",
		"two properties": "\\* lane: build\n\\* expect: violated\n\\* picture: door",
	} {
		if _, err := parseConfig("Door.picture", strings.Replace(small, "\\* lane: build", changed, 1)); err == nil || !strings.Contains(err.Error(), "picture") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestWhatPreventsExists checks that the tests exist by which docs/proof/worth.md says
// that a worthless proof is prevented.
func TestWhatPreventsExists(t *testing.T) {
	page := readFile(t, "../../docs/proof/worth.md")
	named := regexp.MustCompile("`(\\w+\\.Test\\w+)`").FindAllStringSubmatch(page, -1)
	if len(named) < 12 {
		t.Errorf("the page names %d tests", len(named))
	}
	for _, m := range named {
		if bad := unmeasured(t, "`"+m[1]+"`", ""); bad != "" {
			t.Error(bad)
		}
	}
}
