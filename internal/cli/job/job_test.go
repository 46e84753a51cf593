//go:build unix

package job

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// trial is a job in a test: a shell script in a folder of its own, with its
// output and errors in the files out and err.
type trial struct {
	files
	*Job
	notices []Notice
}

func newTrial(t *testing.T, script string, args ...string) *trial {
	t.Helper()
	tr := &trial{files: newFiles(t)}
	open := func(name string, flag int) *os.File {
		f, err := os.OpenFile(name, flag, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	tr.Job = &Job{
		Path: "/bin/sh", Args: append([]string{"sh", "-c", "cd " + tr.dir + "; " + script, "sh"}, args...),
		Env:      os.Environ(),
		Stdin:    open(os.DevNull, os.O_RDONLY),
		Stdout:   open(tr.path("out"), os.O_CREATE|os.O_WRONLY),
		Stderr:   open(tr.path("err"), os.O_CREATE|os.O_WRONLY),
		Deadline: func() time.Time { return time.Now().Add(time.Hour) },
		Grace:    time.Minute,
		Notice:   func(n Notice) { tr.notices = append(tr.notices, n) },
	}
	return tr
}

func (tr *trial) run() Result {
	tr.t.Helper()
	res, err := tr.Run()
	if err != nil {
		tr.t.Fatalf("%v; it said %q", err, tr.read("err"))
	}
	return res
}

func (tr *trial) kinds() (kinds []Kind) {
	for _, n := range tr.notices {
		kinds = append(kinds, n.Kind)
	}
	return kinds
}

// beat is a script that shows for how long it lives: it writes its id to the
// file pid, and again and again to the file beat, and ignores SIGTERM.
const beat = `sh -c 'trap "" TERM; echo $$ >pid.new; mv pid.new pid; while :; do echo >>beat; sleep 0.02; done' `

func TestExitStatusIsTheCommands(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		script string
		want   int
	}{
		{"exit 0", 0}, {"exit 7", 7}, {"exit 255", 255},
		{"kill -KILL $$", 137}, {"kill -TERM $$", 143}, {"kill -INT $$", 130},
	} {
		tr := newTrial(t, tt.script)
		res := tr.run()
		if res.Code() != tt.want || res.Stopped != "" || res.Interrupted {
			t.Errorf("%s: %d, %+v, want %d", tt.script, res.Code(), res, tt.want)
		}
		if got := tr.kinds(); !slices.Equal(got, []Kind{Started}) {
			t.Errorf("%s: notices %v", tt.script, got)
		}
	}
}

func TestUnstartableCommandIsReported(t *testing.T) {
	for path, want := range map[string]error{"/nowhere/at/all": os.ErrNotExist, "/": os.ErrPermission} {
		tr := newTrial(t, "")
		tr.Path = path
		_, err := tr.Run()
		if !errors.As(err, new(*StartError)) || !errors.Is(err, want) {
			t.Errorf("%s: error %v, want a StartError with %v", path, err, want)
		}
	}
	for name, change := range map[Reason]func(*Job){
		InDoubt: func(j *Job) { j.Deadline = func() time.Time { return time.Now().Add(j.Grace / 2) } },
		Expired: func(j *Job) { j.Expired = closed() },
	} {
		tr := newTrial(t, "echo ran >ran")
		change(tr.Job)
		res, err := tr.Run()
		if !errors.As(err, new(*StartError)) || res.Stopped != name || tr.read("ran") != "" {
			t.Errorf("%s: %+v, %v, ran %q", name, res, err, tr.read("ran"))
		}
	}
	tr := newTrial(t, "echo ran >ran")
	tr.guardVerb = "-nonesuch" // ends at once
	if _, err := tr.Run(); err == nil || errors.As(err, new(*StartError)) || tr.read("ran") != "" {
		t.Errorf("without a guard: %v, ran %q", err, tr.read("ran"))
	}
}

func closed() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}

func TestFilesAndEnvironment(t *testing.T) {
	tr := newTrial(t, `cat; echo "$1 $VAR"; echo wrong >&2`, "with blank")
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	go func() {
		_, _ = w.WriteString(strings.Repeat("line\n", 100_000)) // more than a pipe holds
		w.Close()
	}()
	tr.Stdin = r
	tr.Env = append(tr.Env, "VAR=value")
	tr.run()
	if got, want := tr.read("out"), strings.Repeat("line\n", 100_000)+"with blank value\n"; got != want {
		t.Errorf("%d bytes came out, want %d", len(got), len(want))
	}
	if got := tr.read("err"); got != "wrong\n" {
		t.Errorf("errors %q", got)
	}
}

// TestCommandIsInTheGuardsGroup looks at who is in which process group.
func TestCommandIsInTheGuardsGroup(t *testing.T) {
	tr := newTrial(t, `ps -o pgid= -p $$ >mine; sh -c 'ps -o pgid= -p $$ >childs'`)
	tr.run()
	mine, childs := strings.TrimSpace(tr.read("mine")), strings.TrimSpace(tr.read("childs"))
	if mine == "" || mine != childs || mine == strconv.Itoa(syscall.Getpgrp()) {
		t.Errorf("groups %q and %q, that of the test is %d", mine, childs, syscall.Getpgrp())
	}
}

// standStill gives the trial a deadline that moves on until a file has text, and
// from then on stands still, so long after that instant. It returns the deadline
// once it stands.
func (tr *trial) standStill(name string, after time.Duration) (deadline func() time.Time) {
	var at time.Time
	tr.Deadline = func() time.Time {
		if at.IsZero() && tr.read(name) != "" {
			at = time.Now().Add(after)
		}
		if at.IsZero() {
			return time.Now().Add(time.Hour)
		}
		return at
	}
	return func() time.Time { return at }
}

// TestTermInTime has a deadline that stands still: the command is told in time
// to end by itself (F1).
func TestTermInTime(t *testing.T) {
	t.Parallel()
	tr := newTrial(t, `trap 'echo told; exit 3' TERM; echo ready; while :; do sleep 0.02; done`)
	tr.Grace = 20 * time.Second
	at := tr.standStill("out", tr.Grace+time.Second)
	res := tr.run()
	deadline := at()
	if res.Stopped != InDoubt || res.Code() != 3 {
		t.Errorf("%+v, code %d, want it stopped, and its own code 3", res, res.Code())
	}
	if now := time.Now(); now.After(deadline) {
		t.Errorf("it ended %v after the deadline", now.Sub(deadline))
	}
	if got := tr.read("out"); got != "ready\ntold\n" {
		t.Errorf("it said %q", got)
	}
	if got := tr.kinds(); !slices.Equal(got, []Kind{Started, Stopping}) {
		t.Errorf("notices %v", got)
	}
}

// TestKillInTime has a command, and a child of it, that do not listen.
func TestKillInTime(t *testing.T) {
	t.Parallel()
	// The command is killed a second before the deadline, and by the guard half a
	// second later.
	onMovingMachine(t, 300*time.Millisecond, func() (wrong []string) {
		tr := newTrial(t, `trap "" TERM; `+beat+`& while :; do sleep 0.1; done`)
		tr.Grace = 5 * time.Second
		at := tr.standStill("beat", tr.Grace+time.Second)
		res := tr.run()
		deadline := at()
		if res.Stopped != InDoubt || res.Code() != 137 {
			wrong = append(wrong, fmt.Sprintf("%+v, code %d", res, res.Code()))
		}
		gone(t, tr.pid("pid"))
		if last := tr.touched("beat"); last.After(deadline) {
			wrong = append(wrong, fmt.Sprintf("the child of the command was alive %v after the deadline", last.Sub(deadline)))
		}
		if got := tr.kinds(); !slices.Equal(got, []Kind{Started, Stopping, Killing}) {
			wrong = append(wrong, fmt.Sprintf("notices %v", got))
		} else if left := tr.notices[2].Left; left < 0 || left > tr.Grace/2 {
			wrong = append(wrong, fmt.Sprintf("it was killed %v before the deadline, want it late but before", left))
		}
		return wrong
	})
}

// TestStopEndsBackgroundChildren: of a command that was stopped, also what it started in
// the background ends.
func TestStopEndsBackgroundChildren(t *testing.T) {
	t.Parallel()
	tr := newTrial(t, `trap 'exit 0' TERM; `+beat+`& while :; do sleep 0.02; done`)
	deadline := time.Now().Add(time.Hour)
	tr.Deadline = func() time.Time {
		if tr.read("pid") != "" {
			return time.Now().Add(tr.Grace / 2)
		}
		return deadline
	}
	if res := tr.run(); res.Stopped != InDoubt || res.Code() != 0 {
		t.Errorf("%+v", res)
	}
	gone(t, tr.pid("pid"))
}

// TestBackgroundChildOutlivesNormalEnd: of one that ended by itself, it goes on.
func TestBackgroundChildOutlivesNormalEnd(t *testing.T) {
	tr := newTrial(t, beat+`& while [ ! -e pid ]; do sleep 0.02; done`)
	if res := tr.run(); res.Stopped != "" || res.Code() != 0 {
		t.Errorf("%+v", res)
	}
	pid := tr.pid("pid")
	if !running(t, pid) {
		t.Error("it was killed")
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Error(err)
	}
	gone(t, pid)
}

// TestPastDeadlineSkipsTERM: when the deadline has passed already, there is no time for TERM.
func TestPastDeadlineSkipsTERM(t *testing.T) {
	tr := newTrial(t, beat+`& trap 'echo told' TERM; wait`)
	over := make(chan struct{})
	tr.Expired = over
	go func() {
		tr.wait("beat", "\n")
		close(over)
	}()
	if res := tr.run(); res.Stopped != Expired || res.Code() != 137 {
		t.Errorf("%+v", res)
	}
	gone(t, tr.pid("pid"))
	if got := tr.kinds(); !slices.Equal(got, []Kind{Started, Killing}) || tr.read("out") != "" {
		t.Errorf("notices %v, output %q", got, tr.read("out"))
	} else if left := tr.notices[1].Left; left > 0 {
		t.Errorf("after the deadline %v were left", left)
	}
}

// TestMovingDeadlineStopsNothing: while the deadline moves on the command is left alone,
// by the guard too.
func TestMovingDeadlineStopsNothing(t *testing.T) {
	t.Parallel()
	tr := newTrial(t, `i=0; while [ $i -lt 180 ]; do i=$((i+1)); sleep 0.05; done`)
	tr.Deadline = func() time.Time { return time.Now().Add(8 * time.Second) }
	tr.Grace = time.Second
	if res := tr.run(); res.Stopped != "" || res.Code() != 0 {
		t.Errorf("%+v; %q", res, tr.read("err"))
	}
	if got := tr.kinds(); !slices.Equal(got, []Kind{Started}) {
		t.Errorf("notices %v", got)
	}
}

func TestMaxDurationStopsTheCommand(t *testing.T) {
	t.Parallel()
	tr := newTrial(t, `trap 'exit 3' TERM; while :; do sleep 0.02; done`)
	tr.MaxDuration = 20 * time.Second // of which a fifth remains after SIGTERM
	began := time.Now()
	if res := tr.run(); res.Stopped != MaxDuration || res.Code() != 3 {
		t.Errorf("%+v", res)
	}
	if d := time.Since(began); d < tr.MaxDuration/2 {
		t.Errorf("it was stopped after %v, and may run for %v", d, tr.MaxDuration)
	}
	if got := tr.kinds(); !slices.Equal(got, []Kind{Started, Stopping}) {
		t.Errorf("notices %v", got)
	} else if left := tr.notices[1].Left; left > tr.MaxDuration/5 {
		t.Errorf("it was told that %v are left, of the %v that it may run", left, tr.MaxDuration)
	}
}

func TestSignalsArePassedOn(t *testing.T) {
	names := []string{"INT", "TERM", "HUP", "QUIT", "USR1", "USR2", "WINCH"}
	numbers := []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH}
	script := ""
	for _, name := range names {
		script += "trap 'echo " + name + "' " + name + "; "
	}
	tr := newTrial(t, script+`trap 'exit 9' URG; echo ready; while :; do sleep 0.02; done`)
	signals := make(chan os.Signal)
	tr.Signals = signals
	go func() {
		tr.wait("out", "ready")
		signals <- syscall.SIGPIPE // this process's own affair
		for i, s := range numbers {
			signals <- s
			tr.wait("out", names[i])
		}
		signals <- syscall.SIGURG
	}()
	if res := tr.run(); res.Code() != 9 || res.Stopped != "" {
		t.Errorf("%+v", res)
	}
	if got, want := tr.read("out"), "ready\n"+strings.Join(names, "\n")+"\n"; got != want {
		t.Errorf("it got %q, want %q", got, want)
	}
}

// TestIgnoredSignalsStayIgnored: the command ignores the signals that this process
// ignored at its start, as by nohup or in the background of a script, and is not
// sent them. Other signals end the command, whatever the test itself inherited.
func TestIgnoredSignalsStayIgnored(t *testing.T) {
	t.Parallel()
	for name, number := range map[string]syscall.Signal{"HUP": syscall.SIGHUP, "INT": syscall.SIGINT} {
		for _, ignored := range []bool{true, false} {
			f := newFiles(t)
			before, want := "", 128+int(number)
			if ignored {
				before, want = `trap "" `+name+"; ", 6
			}
			cmd := exec.Command("sh", "-c", before+`exec "$@"`, "sh", os.Args[0], "runner", "1h", "1m", "sh", "-c",
				"cd "+f.dir+"; echo >ready; while [ ! -e stop ]; do sleep 0.02; done; kill -"+name+" $$; exit 6")
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			f.wait("ready", "\n")
			_ = cmd.Process.Signal(number)
			if err := os.WriteFile(f.path("stop"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if waitFor(t, cmd); cmd.ProcessState.ExitCode() != want {
				t.Errorf("%s, ignored %v: it ended with %v, want %d", name, ignored, cmd.ProcessState, want)
			}
		}
	}
}

// TestStoppedCommandGoesOn: a command that somebody stops does not stop this process, and
// goes on when it is continued.
func TestStoppedCommandGoesOn(t *testing.T) {
	tr := newTrial(t, `echo $$ >pid; kill -STOP $$; echo on`)
	go func() {
		pid := tr.pid("pid")
		eventually(t, func() bool {
			stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
			return err != nil || strings.Contains(string(stat), ") T ")
		}, func() string { return "it did not stop" })
		_ = syscall.Kill(pid, syscall.SIGCONT)
	}()
	if res := tr.run(); res.Code() != 0 || tr.read("out") != "on\n" {
		t.Errorf("%+v, %q", res, tr.read("out"))
	}
}
