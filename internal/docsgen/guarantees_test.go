package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestGuaranteesNameTestsThatExist checks that each row of the table of what the library
// promises around a lock names a test and an example, and that all of them exist.
func TestGuaranteesNameTestsThatExist(t *testing.T) {
	page, err := os.ReadFile("../../docs/guarantees.md")
	if err != nil {
		t.Fatal(err)
	}
	var code []byte
	for _, folder := range []string{"../..", "../../anylock", "../cli"} {
		files, err := filepath.Glob(folder + "/*_test.go")
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range files {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			code = append(code, text...)
		}
	}
	_, section, _ := strings.Cut(string(page), "\n## What the library promises around a lock\n")
	section, _, _ = strings.Cut(section, "\n## ")
	rows := 0
	for line := range strings.Lines(section) {
		cells := strings.Split(line, "|")
		if len(cells) != 6 || strings.Contains(line, "---") || strings.TrimSpace(cells[1]) == "" {
			continue
		}
		rows++
		for i, kind := range map[int]string{3: "Test", 4: "Example"} {
			names := regexp.MustCompile("`("+kind+"\\w+)`").FindAllStringSubmatch(cells[i], -1)
			if len(names) == 0 {
				t.Errorf("%s: it names no %s", cells[1], kind)
			}
			for _, name := range names {
				if !strings.Contains(string(code), "\nfunc "+name[1]+"(") {
					t.Errorf("%s: %s does not exist", cells[1], name[1])
				}
			}
		}
	}
	if rows < 10 {
		t.Errorf("%d rows, want 10", rows)
	}
}
