//go:build unix

package job

import (
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// TestGuardStartedBefore runs a command with a guard that waited for it: the command is
// in that guard's group, and the guard's process has ended afterwards.
func TestGuardStartedBefore(t *testing.T) {
	t.Parallel()
	tr := newTrial(t, "ps -o pgid= -p $$")
	tr.Guard = StartGuard("", tr.Stderr)
	tr.run()
	pid := tr.Guard.process.pid
	if got := strings.TrimSpace(tr.read("out")); got != strconv.Itoa(pid) {
		t.Errorf("the command's group is %s, its guard %d", got, pid)
	}
	if err := syscall.Kill(pid, 0); err == nil {
		t.Error("the guard lives on")
	}
}

// TestGuardThatEndedBefore kills the guard before there is a command: Run starts another.
func TestGuardThatEndedBefore(t *testing.T) {
	t.Parallel()
	tr := newTrial(t, "ps -o pgid= -p $$")
	tr.Guard = StartGuard("", tr.Stderr)
	<-tr.Guard.ended
	first := tr.Guard.process.pid
	if err := syscall.Kill(first, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-tr.Guard.process.gone
	tr.run()
	if got := strings.TrimSpace(tr.read("out")); got == strconv.Itoa(first) || got == "" {
		t.Errorf("the command's group is %q, that of the guard that had ended", got)
	}
}

// TestGuardWithoutCommand: the end of a wait without a lock ends its guard, which says
// nothing.
func TestGuardWithoutCommand(t *testing.T) {
	t.Parallel()
	tr := newTrial(t, "")
	g := StartGuard(`"a"`, tr.Stderr)
	g.End()
	if err := syscall.Kill(g.process.pid, 0); err == nil {
		t.Error("the guard lives on")
	}
	if said := tr.read("err"); said != "" {
		t.Errorf("it said %q", said)
	}
}
