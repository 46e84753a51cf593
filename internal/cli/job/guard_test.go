//go:build unix

package job

import (
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/cli/guard"
)

// startRunner starts the test binary as a program that runs a job, whose lease
// is renewed as long as that program runs.
func startRunner(t *testing.T, f files, lease, grace time.Duration, script string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0], "runner", lease.String(), grace.String(), "sh", "-c", "cd "+f.dir+"; "+script)
	out, err := os.Create(f.path("log"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("the runner said %q", f.read("log"))
		}
	})
	return cmd
}

// TestKilledParentKillsTheGroup kills the process that runs the job, which has no chance to
// do anything: the command and its children die at once.
func TestKilledParentKillsTheGroup(t *testing.T) {
	t.Parallel()
	f := newFiles(t)
	cmd := startRunner(t, f, time.Hour, time.Minute, `trap "" TERM; `+beat+`& echo $$ >own; while :; do sleep 0.1; done`)
	f.wait("beat", "\n")
	f.wait("own", "\n")
	_ = cmd.Process.Kill()
	gone(t, f.pid("own"))
	gone(t, f.pid("pid"))
	f.wait("log", "holdfast itself has ended")
}

// TestKilledGuardIsReported kills the guard: that is told, and the command goes on.
func TestKilledGuardIsReported(t *testing.T) {
	t.Parallel()
	f := newFiles(t)
	cmd := startRunner(t, f, time.Hour, time.Minute, `ps -o pgid= -p $$ >group; while [ ! -e stop ]; do sleep 0.02; done; exit 4`)
	if err := syscall.Kill(f.pid("group"), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	f.wait("log", "[unguarded ]")
	if err := os.WriteFile(f.path("stop"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if waitFor(t, cmd); cmd.ProcessState.ExitCode() != 4 {
		t.Errorf("it ended with %v, want the command's own status 4", cmd.ProcessState)
	}
}

// TestF12_GuardActsForStoppedParent stops the process that runs the job: the guard ends
// the command before the deadline that was known then.
func TestF12_GuardActsForStoppedParent(t *testing.T) {
	t.Parallel()
	// SIGTERM comes three quarters of the grace before the deadline, SIGKILL half a
	// second before it.
	const lease, grace = 13 * time.Second, 10 * time.Second
	onMovingMachine(t, 300*time.Millisecond, func() []string { return stopParent(t, lease, grace) })
}

// stopParent stops the process that runs a job, and returns what the guard did
// wrong.
func stopParent(t *testing.T, lease, grace time.Duration) (wrong []string) {
	t.Helper()
	f := newFiles(t)
	cmd := startRunner(t, f, lease, grace, `trap 'echo told >told' TERM; `+beat+`& echo $$ >own; while :; do sleep 0.02; done`)
	f.wait("beat", "\n")
	f.wait("own", "\n")
	if err := cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(lease)
	gone(t, f.pid("own"))
	gone(t, f.pid("pid"))
	if last := f.touched("beat"); last.After(deadline) {
		wrong = append(wrong, fmt.Sprintf("the command's child lived %v longer than the lease", last.Sub(deadline)))
	}
	if f.read("told") == "" {
		wrong = append(wrong, "it was killed without having been told to stop")
	}
	_ = cmd.Process.Signal(syscall.SIGCONT)
	f.wait("log", "[result 137")
	if log := f.read("log"); strings.Contains(log, "[unguarded ]") {
		wrong = append(wrong, "the guard, which killed the command, was reported as gone: "+log)
	}
	return wrong
}

// TestGuardReadsTheDeadlines reads what a guard is told.
func TestGuardReadsTheDeadlines(t *testing.T) {
	var before, after time.Duration
	var got [][guard.FrameSize]byte
	for {
		before = guard.Clock()
		got = framesOf(t, func(g *guardProcess) {
			term, kill := time.Now().Add(time.Minute), time.Now().Add(time.Hour)
			g.sendDeadlines(term, kill)
			g.sendDeadlines(term, kill)        // the same again is not sent
			g.sendDeadlines(time.Time{}, kill) // that there is no TERM any more is
		})
		after = guard.Clock()
		// The guard's clock is read a little before the time that is left, so a
		// process that stands still in between sends another instant.
		if len(got) == 2 || after-before < 2*time.Millisecond {
			break
		}
	}
	if len(got) != 2 {
		t.Fatalf("it was told %d times, want 2", len(got))
	}
	at := func(i, part int) time.Duration {
		return time.Duration(binary.BigEndian.Uint64(got[i][part*8:]))
	}
	if term := at(0, 0); term < before+time.Minute-time.Second || term > after+time.Minute {
		t.Errorf("TERM at %v, want a minute after %v", term, before)
	}
	if kill := at(0, 1); kill < before+time.Hour-time.Second || kill > after+time.Hour {
		t.Errorf("KILL at %v, want an hour after %v", kill, before)
	}
	if at(1, 0) != 0 {
		t.Errorf("TERM at %v, want none", at(1, 0))
	}
}

// framesOf returns the frames that send writes to a guard.
func framesOf(t *testing.T, send func(*guardProcess)) (all [][guard.FrameSize]byte) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	send(&guardProcess{to: w})
	w.Close()
	for {
		var f [guard.FrameSize]byte
		if guard.ReadFrame(int(r.Fd()), f[:]) != nil {
			return all
		}
		all = append(all, f)
	}
}

// TestFullPipeDelaysNothing: a guard that is stopped reads nothing, and the
// process goes on.
func TestFullPipeDelaysNothing(t *testing.T) {
	const more = 1 << 16 // than a pipe holds
	got := framesOf(t, func(g *guardProcess) {
		for i := range more {
			g.write([guard.FrameSize]byte{byte(i), 1})
		}
	})
	if len(got) == 0 || len(got) == more {
		t.Errorf("%d of %d frames were sent, want as many as the pipe holds", len(got), more)
	}
}
