//go:build unix

package cli

import (
	"os"
	"strings"
	"testing"
)

// TestEmptyCommandIsRefused: it is refused as such, before anything is asked.
func TestEmptyCommandIsRefused(t *testing.T) {
	t.Parallel()
	holdfastHere("--store", "memory:", "run", "a", "--", "").want(t, exitUsage, "", "COMMAND is empty")
	holdfastHere("--store", "memory:", "run", "", "--", "true").want(t, exitUsage, "", "NAME is empty")
}

// TestUnwritableOutputIsAnError: a verb whose result nobody gets does not end
// well, and says that it is no mistake in the command line.
func TestUnwritableOutputIsAnError(t *testing.T) {
	t.Parallel()
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if os.IsNotExist(err) {
		full, err = os.Open(os.DevNull) // for reading: writes fail as well
	}
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	url := sqlite(t)
	lock(t, open(t, url).Mutex("m"))
	for _, line := range []string{"doctor", "doctor --json", "ls", "show m", "show free", "ls --json", "version", "schema mysql"} {
		p := command(t, append([]string{"--store", url}, strings.Fields(line)...)...)
		p.cmd.Stdout = full
		p.start().end().want(t, exitInternal, "", "standard output: ")
	}
}
