//go:build linux

package clients

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// mutant is a change that breaks a rule of clients/README.md in one client.
type mutant struct {
	Client string
	Rule   int
	Flaw   string
	Old    string
	New    string
}

// ruleTests are the files of the clients, and the commands that run the tests of rules
// in a folder with a copy of the client.
var ruleTests = map[string]struct {
	file    string
	command []string
}{
	"python": {"holdfast/__init__.py", []string{"python3", "-m", "unittest", "-v", "tests.test_rules"}},
	"node":   {"holdfast.js", []string{"node", "--test", "--test-reporter=tap", "test/rules.test.js"}},
	"sh":     {"holdfast.sh", []string{"dash", "test.sh", "test_rule"}},
	"java":   {"src/main/java/io/github/holdfastgo/Locks.java", []string{"mvn", "-B", "-o", "test", "-Dtest=RulesTest", "-Dsurefire.reportFormat=plain", "-Dsurefire.useFile=false"}},
}

// passed finds a test that passed, in the output of each tool chain.
var passed = regexp.MustCompile(`(?m)(\.\.\. ok$|^\s*ok (\d+ - rule|test_rule)|RulesTest\.rule_\S+ -- Time elapsed: \S+ s$)`)

func TestMutantsOfEachRuleAreCaught(t *testing.T) {
	if !*lane {
		return // make clients
	}
	folder := filepath.Join("..", "..", "..", "clients")
	b, err := os.ReadFile(filepath.Join(folder, "mutants.json"))
	if err != nil {
		t.Fatal(err)
	}
	var mutants []mutant
	if err := json.Unmarshal(b, &mutants); err != nil {
		t.Fatal(err)
	}
	for client, tests := range ruleTests {
		if out, err := runRules(t, filepath.Join(folder, client), tests.command); err != nil {
			t.Fatalf("%s: the client without a mutant fails: %v\n%s", client, err, out)
		}
	}
	for _, m := range mutants {
		t.Run(fmt.Sprintf("%s/rule %02d/%s", m.Client, m.Rule, m.Flaw), func(t *testing.T) {
			t.Parallel()
			tests, ok := ruleTests[m.Client]
			if !ok {
				t.Fatalf("no client is named %q", m.Client)
			}
			dir := t.TempDir()
			if err := os.CopyFS(dir, os.DirFS(filepath.Join(folder, m.Client))); err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(dir, filepath.FromSlash(tests.file))
			source, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if n := strings.Count(string(source), m.Old); n != 1 {
				t.Fatalf("the client has the text %d times, want once: %s", n, m.Old)
			}
			if err := os.WriteFile(file, []byte(strings.Replace(string(source), m.Old, m.New, 1)), 0o600); err != nil {
				t.Fatal(err)
			}
			out, err := runRules(t, dir, tests.command)
			caught := regexp.MustCompile(fmt.Sprintf(`(?m)((FAIL|ERROR): test_rule_%02d|^\s*not ok (\d+ - rule %02d|test_rule_%02d)|RulesTest\.rule_%02d\S+ -- .*<<< (FAILURE|ERROR)!)`, m.Rule, m.Rule, m.Rule, m.Rule))
			if err == nil || !caught.MatchString(out) || !passed.MatchString(out) {
				t.Errorf("no test of the rule fails, or all tests do: %v\n%s", err, out)
			}
		})
	}
}

// runRules runs the tests of rules in a folder, and returns what they wrote.
func runRules(t *testing.T, dir string, command []string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Dir = dir
	cmd.WaitDelay = time.Second
	cmd.Env = append(cmd.Environ(), "PYTHONDONTWRITEBYTECODE=1")
	out, err := cmd.CombinedOutput()
	return string(out), err
}
