package job

import (
	"os"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func init() {
	adopt = func() error { return unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }
}

// TestOrphansAreReaped: no process that the command left behind stays a zombie,
// and the command's own status is not taken for that of one.
func TestOrphansAreReaped(t *testing.T) {
	f := newFiles(t)
	t.Setenv(adopts, "1")
	cmd := startRunner(t, f, time.Hour, time.Minute, `i=0
		while [ $i -lt 50 ]; do sh -c 'sleep 0.01 & echo $! >>orphans'; i=$((i+1)); done
		echo all >made; while [ ! -e stop ]; do sleep 0.02; done; exit 7`)
	f.wait("made", "all")
	zombies := func() (n int) {
		entries, err := os.ReadDir("/proc")
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if pid, err := strconv.Atoi(e.Name()); err == nil {
				if state, parent := statOf(pid); state == 'Z' && parent == cmd.Process.Pid {
					n++
				}
			}
		}
		return n
	}
	eventually(t, func() bool { return zombies() == 0 }, func() string { return "zombies are left" })
	if err := os.WriteFile(f.path("stop"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if waitFor(t, cmd); cmd.ProcessState.ExitCode() != 7 {
		t.Errorf("it ended with %v, want the command's own status 7", cmd.ProcessState)
	}
}
