// Package modules_test checks what a program requires that takes the core and one store.
package modules_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/testkit/programs"
)

// TestProgramRequiresItsStoreAlone checks programs with the modules of this tree. The lane
// of the release does so with the zips that it would publish.
func TestProgramRequiresItsStoreAlone(t *testing.T) {
	list, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Path}} {{.Dir}}").Output()
	if err != nil {
		t.Fatal(err)
	}
	m := programs.Modules{Env: []string{"GOWORK=off", "GOFLAGS=-mod=mod"}}
	for line := range strings.Lines(string(list)) {
		path, dir, _ := strings.Cut(strings.TrimSpace(line), " ")
		m.Paths = append(m.Paths, path)
		m.Mod += fmt.Sprintf("replace %s => %s\n", path, dir)
		sum, err := os.ReadFile(filepath.Join(dir, "go.sum"))
		if err != nil {
			t.Fatal(err)
		}
		m.Sums = append(m.Sums, sum...)
	}
	m.Check(t, false)
}
