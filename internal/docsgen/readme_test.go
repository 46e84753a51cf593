package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
)

// TestReadmeProgramRuns builds the README's whole program, and runs it twice in an
// empty folder: each run prints its line, with a later token.
func TestReadmeProgramRuns(t *testing.T) {
	page, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	program := regexp.MustCompile("(?s)```go\n(package main\n.*?)```").FindSubmatch(page)
	if program == nil {
		t.Fatal("the README has no whole program")
	}
	folder := t.TempDir()
	source := filepath.Join(folder, "main.go")
	if err := os.WriteFile(source, program[1], 0o600); err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(folder, "program")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, source).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var before string
	for range 2 {
		cmd := exec.CommandContext(t.Context(), binary)
		cmd.Dir = folder
		out, err := cmd.CombinedOutput()
		said := regexp.MustCompile(`^posting the invoice, with token (\d+)\n$`).FindSubmatch(out)
		if err != nil || said == nil {
			t.Fatalf("%v\n%s", err, out)
		}
		token := string(said[1])
		if len(token) < len(before) || len(token) == len(before) && token <= before {
			t.Errorf("token %s after %s", token, before)
		}
		before = token
	}
}
