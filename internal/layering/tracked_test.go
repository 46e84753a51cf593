package layering

import (
	"os/exec"
	"strconv"
	"strings"
	"testing"
)

// maxTracked bounds the size of a file in the repository. A built program, which `go build`
// leaves in the folder of its package, is above it: each clone would carry it for ever.
const maxTracked = 1 << 20

// TestNoBuiltProgramIsTracked checks the size of each file of the last commit. A copy without
// the history has nothing to check.
func TestNoBuiltProgramIsTracked(t *testing.T) {
	out, err := exec.Command("git", "ls-tree", "-r", "--long", "--full-tree", "HEAD").Output()
	if err != nil {
		t.Logf("no history here: %v", err)
		return
	}
	for _, file := range tooLarge(t, string(out)) {
		t.Errorf("%s is larger than %d bytes: remove it, and add its path to .gitignore", file, maxTracked)
	}
	if bad := tooLarge(t, "100644 blob 1234 12\tdoc.go\n100755 blob 1234 54171779\tclients/lockd/lockd\n120000 commit 12 -\tsub\n"); len(bad) != 1 || bad[0] != "clients/lockd/lockd" {
		t.Errorf("of one program and one file: %q", bad)
	}
}

// tooLarge returns the files above maxTracked in the output of git ls-tree --long.
func tooLarge(t *testing.T, list string) (files []string) {
	t.Helper()
	for line := range strings.Lines(list) {
		about, file, _ := strings.Cut(strings.TrimSpace(line), "\t")
		fields := strings.Fields(about)
		if len(fields) != 4 {
			t.Fatalf("git ls-tree says %q", line)
		}
		if size, err := strconv.Atoi(fields[3]); err == nil && size > maxTracked {
			files = append(files, file)
		}
	}
	return files
}
