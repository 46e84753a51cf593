package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	// consoleBlock is a session of a page, after a comment with the commands that
	// come before it.
	consoleBlock = regexp.MustCompile("(?ms)^<!-- console: ([^\n]*) -->\n+```console\n(.*?)^```$")
	// changing are the parts of its output that differ from run to run.
	changing = regexp.MustCompile(`pid \d+ on \S+|\d{4}-\d\d-\d\dT[0-9:.]+Z|ended after \S+,`)
	shown    = regexp.MustCompile(`(?s)^(.*?)(?:\[status (\d+)\]\n)?$`)
)

// TestSessionsOfPagesPrintThat runs the sessions of pages that have such a comment, on a
// store of their own, and compares what they print, and the statuses that are shown.
func TestSessionsOfPagesPrintThat(t *testing.T) {
	folder := t.TempDir()
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", folder+"/holdfast", "../../cmd/holdfast").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	commands := 0
	for _, page := range pages(t) {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range consoleBlock.FindAllStringSubmatch(string(text), -1) {
			session := strings.Split("\n"+m[2], "\n$ ")[1:]
			commands += len(session)
			printed := runSession(t, folder, m[1], session)
			for i, part := range session {
				command, want, _ := strings.Cut(part, "\n")
				if i < len(session)-1 {
					want += "\n"
				}
				want = strings.TrimPrefix(want, "\n")
				if w := shown.FindStringSubmatch(want); w[2] != "" {
					want = w[1] + "[status " + w[2] + "]\n"
				} else {
					printed[i] = shown.FindStringSubmatch(printed[i])[1]
				}
				if got, want := changing.ReplaceAllString(printed[i], "…"), changing.ReplaceAllString(want, "…"); got != want {
					t.Errorf("%s: %s prints\n%s, and the page shows\n%s", page, command, got, want)
				}
			}
		}
	}
	if commands < 9 {
		t.Errorf("only %d commands were run", commands)
	}
}

// runSession returns what each command printed, with its status as the last line.
func runSession(t *testing.T, folder, before string, session []string) []string {
	t.Helper()
	const mark = "-- the next command --\n"
	script := "exec 2>&1\n" + before + "\n"
	for _, part := range session {
		command, _, _ := strings.Cut(part, "\n")
		script += fmt.Sprintf("echo '%s'; (exit $status)\n%s\nstatus=$?; echo \"[status $status]\"\n", strings.TrimSpace(mark), command)
	}
	script += "kill $(jobs -p) 2>/dev/null; wait\n"
	cmd := exec.CommandContext(t.Context(), "bash", "-c", script)
	cmd.Dir = t.TempDir()
	cmd.Env = append(os.Environ(), "PATH="+folder+":"+os.Getenv("PATH"), "HOLDFAST_STORE=sqlite:"+filepath.Join(cmd.Dir, "locks.db"), "LC_ALL=C")
	out, err := cmd.Output()
	if err != nil && !strings.Contains(string(out), "[status ") {
		t.Fatalf("%v\n%s", err, out)
	}
	parts := strings.Split(string(out), mark)[1:]
	if len(parts) != len(session) {
		t.Fatalf("%d parts of %d commands:\n%s", len(parts), len(session), out)
	}
	return parts
}
