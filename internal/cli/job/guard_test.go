//go:build unix

package job

import (
	"encoding/binary"
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

// TestKilledParent kills the process that runs the job, which has no chance to
// do anything: the command and its children die at once.
func TestKilledParent(t *testing.T) {
	t.Parallel()
	f := newFiles(t)
	cmd := startRunner(t, f, time.Hour, time.Minute, beat+`& echo $$ >own; trap "" TERM; while :; do sleep 0.1; done`)
	f.wait("beat", "\n")
	_ = cmd.Process.Kill()
	gone(t, f.pid("own"))
	gone(t, f.pid("pid"))
	f.wait("log", "holdfast itself has ended")
}

// TestKilledGuard kills the guard: that is told, and the command goes on.
func TestKilledGuard(t *testing.T) {
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
	if _ = cmd.Wait(); cmd.ProcessState.ExitCode() != 4 {
		t.Errorf("it ended with %v, want the command's own status 4", cmd.ProcessState)
	}
}

// TestF12_StandingStill stops the process that runs the job: the guard ends
// the command before the deadline that was known then.
func TestF12_StandingStill(t *testing.T) {
	t.Parallel()
	const lease, grace = 5 * time.Second, 2500 * time.Millisecond
	f := newFiles(t)
	cmd := startRunner(t, f, lease, grace, beat+`& echo $$ >own; trap 'echo told >told' TERM; while :; do sleep 0.02; done`)
	f.wait("beat", "\n")
	if err := cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(lease)
	gone(t, f.pid("own"))
	gone(t, f.pid("pid"))
	if last := f.touched("beat"); last.After(deadline) {
		t.Errorf("the command's child lived %v longer than the lease", last.Sub(deadline))
	}
	if f.read("told") == "" {
		t.Error("it was killed without having been told to stop")
	}
	_ = cmd.Process.Signal(syscall.SIGCONT)
	f.wait("log", "[result 137")
}

// TestGuardMustLead: started by hand, it must not kill the group it happens to
// be in.
func TestGuardMustLead(t *testing.T) {
	cmd := exec.Command(os.Args[0], "guard")
	out, err := cmd.CombinedOutput() // standard input is empty: for a guard, the end of holdfast
	if err == nil || !strings.Contains(string(out), "leads a process group") {
		t.Errorf("%v, %q", err, out)
	}
}

// TestGuardLoop has a clock of its own, which a poll moves on by what it waits.
func TestGuardLoop(t *testing.T) {
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
			err = watchOver(int(r.Fd()), clock, func(sig syscall.Signal, _ string) { got = append(got, sig) })
			if err != nil || !slices.Equal(got, tt.want) {
				t.Errorf("%v, error %v, want %v", got, err, tt.want)
			}
		})
	}
}

// TestTold reads what a guard is told.
func TestTold(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	g := &guard{to: w}
	tell := func(term, kill time.Duration) {
		now := time.Now()
		var at time.Time
		if term != 0 {
			at = now.Add(term)
		}
		g.tell(at, now.Add(kill))
	}
	before := bootClock()
	tell(time.Minute, time.Hour)
	tell(time.Minute, time.Hour) // the same again is not sent
	tell(0, time.Hour)           // that there is no TERM any more is
	w.Close()
	var got [3][frameSize]byte
	for i := range 2 {
		if err := readFrame(int(r.Fd()), got[i][:]); err != nil {
			t.Fatal(err)
		}
	}
	if err := readFrame(int(r.Fd()), got[2][:]); err == nil {
		t.Error("it was told the same twice")
	}
	after := bootClock()
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
