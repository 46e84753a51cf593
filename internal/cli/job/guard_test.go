//go:build unix

package job

import (
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
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
	return wrong
}

// TestGuardRefusesForeignGroup: started by hand, it must not kill the group it happens to
// be in.
func TestGuardRefusesForeignGroup(t *testing.T) {
	cmd := exec.Command(os.Args[0], "guard")
	out, err := cmd.CombinedOutput() // standard input is empty: for a guard, the end of holdfast
	if err == nil || !strings.Contains(string(out), "leads a process group") {
		t.Errorf("%v, %q", err, out)
	}
}

// TestGuardLoopKeepsItsTimes has a clock of its own, which a poll moves on by what it waits.
func TestGuardLoopKeepsItsTimes(t *testing.T) {
	const s = int64(time.Second)
	type frame struct{ term, kill int64 }
	for _, tt := range []struct {
		name   string
		frames []frame
		closed bool // the other end of the pipe
		want   []syscall.Signal
	}{
		{"the other end is gone", nil, true, []syscall.Signal{syscall.SIGKILL}},
		{"gone in time", []frame{{10 * s, 20 * s}}, true, []syscall.Signal{syscall.SIGKILL}},
		{"done", []frame{{10 * s, 20 * s}, {0, 0}}, true, nil},
		{"too late to be told", []frame{{1, 2}}, false, []syscall.Signal{syscall.SIGKILL}},
		{"told, then killed", []frame{{1, s / 10}}, false, []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL}},
		{"it was told already", []frame{{0, s / 10}}, false, []syscall.Signal{syscall.SIGKILL}},
		{"old news does not count", []frame{{1, 2}, {10 * s, 20 * s}, {0, 0}}, true, nil},
		{"the newest counts", []frame{{10 * s, 20 * s}, {0, s / 10}}, false, []syscall.Signal{syscall.SIGKILL}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			defer w.Close()
			for _, f := range tt.frames {
				var b [frameSize]byte
				binary.BigEndian.PutUint64(b[:8], uint64(f.term))
				binary.BigEndian.PutUint64(b[8:], uint64(f.kill))
				if _, err := w.Write(b[:]); err != nil {
					t.Fatal(err)
				}
			}
			if tt.closed {
				w.Close()
			}
			var now atomic.Int64 // moves on by a hundredth of a second each time it is read
			now.Store(5)
			clock := func() time.Duration { return time.Duration(now.Add(s/100) - s/100) }
			var got []syscall.Signal
			err = guardLoop(int(r.Fd()), clock, func(sig syscall.Signal, _ string) { got = append(got, sig) })
			if err != nil || !slices.Equal(got, tt.want) {
				t.Errorf("%v, error %v, want %v", got, err, tt.want)
			}
		})
	}
}

// TestGuardReadsTheDeadlines reads what a guard is told.
func TestGuardReadsTheDeadlines(t *testing.T) {
	var before, after time.Duration
	var got [][frameSize]byte
	for {
		before = bootClock()
		got = framesOf(t, func(g *guard) {
			term, kill := time.Now().Add(time.Minute), time.Now().Add(time.Hour)
			g.sendDeadlines(term, kill)
			g.sendDeadlines(term, kill)        // the same again is not sent
			g.sendDeadlines(time.Time{}, kill) // that there is no TERM any more is
		})
		after = bootClock()
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
func framesOf(t *testing.T, send func(*guard)) (all [][frameSize]byte) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	send(&guard{to: w})
	w.Close()
	for {
		var f [frameSize]byte
		if readFrame(int(r.Fd()), f[:]) != nil {
			return all
		}
		all = append(all, f)
	}
}

// TestFullPipeDelaysNothing: a guard that is stopped reads nothing, and the
// process goes on.
func TestFullPipeDelaysNothing(t *testing.T) {
	const more = 1 << 16 // than a pipe holds
	got := framesOf(t, func(g *guard) {
		for i := range more {
			g.write([frameSize]byte{byte(i), 1})
		}
	})
	if len(got) == 0 || len(got) == more {
		t.Errorf("%d of %d frames were sent, want as many as the pipe holds", len(got), more)
	}
}
