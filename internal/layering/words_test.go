package layering

import (
	"flag"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

var (
	lower  = flag.Bool("lower", false, "write down the counts of words.txt that have fallen")
	strict = flag.Bool("strict", false, "fail when a count has fallen and was not written down")
)

const wordsFile = "words.txt"

// TestWords counts breaches of the rules of writing. No count may rise, and a
// count that fell has to be written down, so that it cannot rise again. CI
// insists on that with -strict; elsewhere, branches that mend different places
// would meet in one file.
func TestWords(t *testing.T) {
	tree, err := Read(os.DirFS("../.."))
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(wordsFile)
	if err != nil {
		t.Fatal(err)
	}
	allowed, err := ParseCounts(string(data))
	if err != nil {
		t.Fatalf("%s: %v", wordsFile, err)
	}
	places := tree.Breaches()
	now := Count(places)
	risen, fallen := now.Compare(allowed)
	for _, text := range risen {
		folder, rest, _ := strings.Cut(text, " ")
		name, _, _ := strings.Cut(rest, ":")
		i := slices.IndexFunc(WordRules(), func(r WordRule) bool { return r.Name == name })
		t.Errorf("%s; the rule is in docs/glossary.md; why: %s; all places:\n\t%s", text, WordRules()[i].Reason, strings.Join(places[folder][name], "\n\t"))
	}
	switch {
	case *lower && len(risen) == 0:
		if err := os.WriteFile(wordsFile, []byte(now.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	case len(fallen) > 0:
		complain := t.Logf
		if *strict {
			complain = t.Errorf
		}
		complain("counts have fallen: write that down with\n\tgo test ./internal/layering -run TestWords -lower\n\t%s", strings.Join(fallen, "\n\t"))
	}
}

// planted has texts with breaches of each rule, and texts in which the rule
// must find none.
var planted = []struct {
	rule, file, data string
	want             int
}{
	{"G1", "driver/a.go", "package driver\n\n// Opens it.\nfunc Open() {}\n\n// Close ends it.\nfunc Close() {}\n", 1},
	{"G1", "driver/a.go", "package driver\n\n// Age is for how long it lasts.\nvar Age int\n\n// Size is the number of bytes.\nvar Size int\n", 1},
	{"G1", "driver/a.go", "package driver\n\n// T is what is kept.\ntype T int\n\n// A U is a number.\ntype U int\n\n// Some numbers.\nconst (\n\t// A is one.\n\tA = 1\n\t// it is two.\n\tB = 2\n)\n", 2},
	{"G2", "driver/a.go", "package driver\n\n// Who asks waits.\n", 1},
	{"G2", "driver/a.go", "package driver\n\n// It waits. What it has\n// stays. Whom it asks, too.\n", 2},
	{"G2", "driver/a.go", "package driver\n\nvar x int // whoever asks\n", 1},
	{"G2", "driver/a.go", "package driver\n\n// Who waits? It says \"What is it\" and `Who.` Here v. Whatever it is.\n//\n//\tWho stands in code or output\n//\n//   What is indented\n", 0},
	{"G2", "driver/a.go", "package driver\n\n// There are:\n//   - What is first\n//     in the list\n//   - nothing\n", 1},
	{"G2", "docs/a.md", "# What it is\n\nWhat it does is here. See [Who](../driver). What?\n\n```\nWho prints this\n```\n\n| Who it is | b |\n|---|---|\n| what it is | c |\n", 2},
	{"G2", "docs/a.md", "> What is quoted as text\n\n1. Whose turn\n   it is\n", 2},
	{"G3", "driver/a.go", "package driver\n\nfunc solo(lines int) { deadLine := 1; deadline := 2; _, _ = deadLine, deadline }\n", 3},
	{"G3", "driver/crowd.go", "package driver\n", 1},
	{"G3", "driver/a.go", "package driver\n\ntype Status int\n\ntype Place int\n\nfunc place() {}\n", 1},
	{"G3", "driver/a.go", "package driver\n\n// It digs a grave in the crowd; hand-overs are `grave`.\n", 2},
	{"G4", "driver/a.go", "package driver\n\n// It looks. The caller has mu.\nfunc x() {}\n\n// The caller has the choice.\nfunc y() {}\n", 1},
	{"G4", "driver/a.go", "package driver\n\n// The caller holds s.mu and has the lock.\nfunc x() {}\n", 1},
	{"G5", "driver/a_test.go", "package driver\n\nfunc TestTold() {}\nfunc TestF12_Met() {}\nfunc TestKeep() {}\nfunc TestF12_F13_WaiterSeesCommits() {}\nfunc TestMain() {}\nfunc TestF7() {}\n", 3},
	{"G6", "driver/a.go", "package driver\n\nimport \"errors\"\n\nvar a, b = errors.New(\"the most is 3\"), errors.New(\"4 bytes long; the maximum is 3\")\n", 1},
	{"G6", "driver/a.go", "package driver\n\nimport \"fmt\"\n\nvar a = fmt.Errorf(\"no room for us: %w\", fmt.Errorf(\"It ended.\"))\n", 2},
}

// TestWordRulesFindPlantedBreaches plants breaches of each rule, beside texts
// that must not count.
func TestWordRulesFindPlantedBreaches(t *testing.T) {
	page, err := os.ReadFile("../../" + glossaryFile)
	if err != nil {
		t.Fatal(err)
	}
	proven := map[string]bool{}
	for _, p := range planted {
		change := map[string]string{p.file: p.data, glossaryFile: string(page)}
		tree := read(t, change)
		delete(change, p.file)
		found, before := 0, 0
		for _, rules := range tree.Breaches() {
			found += len(rules[p.rule])
		}
		for _, rules := range read(t, change).Breaches() {
			before += len(rules[p.rule])
		}
		if found-before != p.want {
			t.Errorf("%s: found %d, want %d in\n%s\n%v", p.rule, found-before, p.want, p.data, tree.Breaches())
		}
		proven[p.rule] = proven[p.rule] || p.want > 0
	}
	for _, rule := range WordRules() {
		if !proven[rule.Name] || rule.Reason == "" {
			t.Errorf("%s has no planted breach, or no reason", rule.Name)
		}
	}
}

// TestCountsMayOnlyFall plants a breach in a folder with a count and in one
// without.
func TestCountsMayOnlyFall(t *testing.T) {
	allowed, err := ParseCounts("driver G2=1 G4=2\n\n. G1=3\n")
	if err != nil {
		t.Fatal(err)
	}
	now := Counts{"driver": {"G2": 2, "G4": 1}, "redlock": {"G5": 1}, ".": {"G1": 3}}
	risen, fallen := now.Compare(allowed)
	if got := strings.Join(risen, "; "); got != "driver G2: 2, was 1; redlock G5: 1, was 0" {
		t.Errorf("risen: %s", got)
	}
	if got := strings.Join(fallen, "; "); got != "driver G4: 1, was 2" {
		t.Errorf("fallen: %s", got)
	}
	if again, err := ParseCounts(now.String()); err != nil || again.String() != now.String() {
		t.Errorf("%q is read as %q, %v", now, again, err)
	}
	for _, bad := range []string{"driver G2", "driver G2=0", "driver G2=x", "driver G2=1\ndriver G3=1"} {
		if _, err := ParseCounts(bad); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

// TestGlossaryHasTerms checks the page on which the rules rest.
func TestGlossaryHasTerms(t *testing.T) {
	tree, err := Read(os.DirFS("../.."))
	if err != nil {
		t.Fatal(err)
	}
	terms, words := tree.glossary()
	if len(terms) < 40 || len(words) < 12 {
		t.Errorf("%d terms and %d replaced words", len(terms), len(words))
	}
	seen := map[string]bool{}
	for _, term := range terms {
		if seen[term] {
			t.Errorf("two rows for %s", term)
		}
		seen[term] = true
	}
	for _, w := range words {
		if seen[w.word] {
			t.Errorf("%q is a term and a replaced word", w.word)
		}
	}
}

// TestTitleOfEachCommit checks rule G7 on the commits since TitlesFrom. A copy
// without the history has nothing to check.
func TestTitleOfEachCommit(t *testing.T) {
	out, err := exec.Command("git", "log", "--no-merges", "--format=%h %s", TitlesFrom+"..HEAD").Output()
	if err != nil {
		t.Logf("no history here: %v", err)
		return
	}
	for line := range strings.Lines(string(out)) {
		hash, title, _ := strings.Cut(strings.TrimSpace(line), " ")
		if err := CheckTitle(title); err != nil {
			t.Errorf("%s %q: %v (rule G7 of docs/glossary.md)", hash, title, err)
		}
	}
}

// TestTitlesAreJudged checks titles that keep rule G7, and titles that break
// it.
func TestTitlesAreJudged(t *testing.T) {
	for _, good := range []string{
		"redislock: omit evicted holders from Inspect", "pglock, mysqllock: lock and release where pushes fail",
		".ci: run the fast tests first", "README: pass the token on", "internal/cli: feed the guard",
	} {
		if err := CheckTitle(good); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
	for bad, want := range map[string]string{
		"omit evicted holders":                                       "not of the form",
		"redislock: who holds no more is not shown":                  "no verb",
		"redislock: nobody waits":                                    "no verb",
		"redislock: fixes a race":                                    "not the imperative",
		"redislock: fixed a race":                                    "not the imperative",
		"redislock: Fix a race":                                      "lower case",
		"redislock: a race":                                          "no verb",
		"redislock: mend a race; whoever holds goes on":              "a clause",
		"redislock: " + strings.Repeat("mend ", 13):                  "72",
		"mysqllock: what is prepared and what is not in one place":   "no verb",
		"etcdlock: the queue is read once where it was read twice o": "no verb",
	} {
		if err := CheckTitle(bad); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", bad, err, want)
		}
	}
}
