package trial

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

const installed = "/usr/local/bin/holdfast"

var (
	unitBlock = regexp.MustCompile("(?ms)^```ini\n(.*?)^```$")
	runLine   = regexp.MustCompile(`(?m)^(?:ExecStart=|[0-9*/]+(?: [0-9*/]+){4} )(` + installed + ` .*) -- /.*$`)
	serveLine = regexp.MustCompile(`(?m)^ExecStart=` + installed + ` (serve .*)$`)
)

// page returns docs/systemd.md, and the binary of the release.
func page(t *testing.T) (text, binary string) {
	t.Helper()
	data, err := os.ReadFile("../../docs/systemd.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(data), archive(t) + "/holdfast"
}

// TestUnitsOfPageVerified lets systemd-analyze verify the units of docs/systemd.md.
func TestUnitsOfPageVerified(t *testing.T) {
	text, binary := page(t)
	blocks := unitBlock.FindAllStringSubmatch(text, -1)
	if len(blocks) != 5 {
		t.Fatalf("%d units, want a job, its timer, a standby, and a lock server with its socket", len(blocks))
	}
	folder := t.TempDir()
	args := []string{"verify", "--man=no", "--recursive-errors=no"}
	for i, name := range []string{"backup.service", "backup.timer", "reconciler.service", "holdfast.socket", "holdfast.service"} {
		unit := strings.ReplaceAll(blocks[i][1], installed, binary)
		file := filepath.Join(folder, name)
		if err := os.WriteFile(file, []byte(unit), 0o644); err != nil {
			t.Fatal(err)
		}
		args = append(args, file)
	}
	if out := said(t, "systemd-analyze", args...); out != "" {
		t.Errorf("systemd-analyze:\n%s", out)
	}
}

// TestLinesOfPageRun runs the commands of the units and of the crontab, with a store
// of the test and a command that does nothing.
func TestLinesOfPageRun(t *testing.T) {
	text, binary := page(t)
	lines := runLine.FindAllStringSubmatch(text, -1)
	if len(lines) != 5 {
		t.Fatalf("%d lines, want two of units and three of a crontab", len(lines))
	}
	store := filepath.Join(t.TempDir(), "store")
	if err := os.WriteFile(store, []byte("sqlite:locks.db\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, line := range lines {
		command := strings.NewReplacer(installed, binary, "%d/store", store, "/etc/holdfast/store", store).Replace(line[1]) + " -- true"
		if strings.Contains(command, "%") {
			t.Errorf("%s: cron and systemd have a meaning for %%", command)
		}
		if out := said(t, "sh", "-c", command); out != "" {
			t.Errorf("%s: %s", command, out)
		}
	}
}

// TestLockServerOfPageRuns starts the lock server by the line of its unit, asks it, and
// ends it by SIGTERM.
func TestLockServerOfPageRuns(t *testing.T) {
	text, binary := page(t)
	line := serveLine.FindStringSubmatch(text)
	if line == nil {
		t.Fatal("no unit starts a lock server")
	}
	store := filepath.Join(t.TempDir(), "store")
	if err := os.WriteFile(store, []byte("sqlite:"+filepath.Join(t.TempDir(), "locks.db")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(binary, strings.Fields(strings.ReplaceAll(line[1], "%d/store", store))...)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() }) // if the test ends early
	awaitReady(t, "127.0.0.1:7420")
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("the server: %v", err)
	}
}
