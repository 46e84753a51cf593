//go:build unix

package cli

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// maxInitBytes bounds what each of our packages allocates as the command starts.
const maxInitBytes = 32 << 10

// TestPackagesStartLean checks that our packages put off what costs time, as scripts and
// patterns, until it is needed: each run starts the command, with the clients of all
// stores, for one store. The Go runtime tells what the initialization of each package
// allocates.
func TestPackagesStartLean(t *testing.T) {
	cmd := exec.Command(os.Args[0], "version")
	cmd.Env = append(os.Environ(), asHoldfast+"=1", "GODEBUG=inittrace=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	seen := 0
	for line := range strings.Lines(string(out)) {
		var pkg string
		var at, took float64
		var bytes int
		if n, _ := fmt.Sscanf(line, "init %s @%f ms, %f ms clock, %d bytes", &pkg, &at, &took, &bytes); n != 4 || !strings.HasPrefix(pkg, "github.com/holdfast-go/holdfast/") {
			continue
		}
		seen++
		if bytes > maxInitBytes && !strings.Contains(pkg, "/internal/testkit/") {
			t.Errorf("the initialization of %s allocates %d bytes, want at most %d: make what it needs later", pkg, bytes, maxInitBytes)
		}
	}
	if seen < 10 {
		t.Errorf("%d of our packages are initialized: %s", seen, out)
	}
}
