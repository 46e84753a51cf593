package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestTestingPageRuns makes one test file of the Go of testing.md, as the page says, and
// runs it: each test of it passes.
func TestTestingPageRuns(t *testing.T) {
	page, err := os.ReadFile("../../docs/testing.md")
	if err != nil {
		t.Fatal(err)
	}
	file := "package page\n\nimport (\n"
	for _, path := range []string{"context", "errors", "testing", "testing/synctest", "time", repo, repo + "/driver", repo + "/memlock"} {
		file += "\t\"" + path + "\"\n"
	}
	file += ")\n"
	var code strings.Builder
	for _, s := range snippets("testing.md", string(page)) {
		code.WriteString("\n" + s.text)
	}
	tests := regexp.MustCompile(`(?m)^func (Test\w+)`).FindAllStringSubmatch(code.String(), -1)
	if len(tests) < 3 {
		t.Fatalf("the page has %d tests", len(tests))
	}
	source := filepath.Join(t.TempDir(), "page_test.go")
	if err := os.WriteFile(source, []byte(file+code.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "go", "test", "-v", source)
	cmd.Dir = "../.."
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, test := range tests {
		if !strings.Contains(string(out), "--- PASS: "+test[1]+" ") {
			t.Errorf("%s did not pass:\n%s", test[1], out)
		}
	}
}
