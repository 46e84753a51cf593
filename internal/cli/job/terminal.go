//go:build unix

package job

import (
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// terminal is the controlling terminal, which one process group at a time may
// read and configure: the foreground. The command's group becomes it at once
// when the command is interactive, and otherwise when it is stopped for want of
// it; the other programs of a pipeline keep it until then.
//
// A process with no controlling terminal has a nil *terminal, whose methods do
// nothing.
type terminal struct {
	fd          int
	own         int // this process's group
	group       int // the command's
	modes       *term.State
	given       bool // the group has been given the terminal, and not lost it to a stop
	ignoresTTOU bool // SIGTTOU is ignored
}

// openTerminal opens the controlling terminal, if there is one.
func openTerminal(group int) *terminal {
	// By its own descriptor: standard input and output may be redirected.
	fd, err := unix.Open("/dev/tty", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	t := &terminal{fd: fd, own: unix.Getpgrp(), group: group}
	t.modes, _ = term.GetState(fd)
	return t
}

// interactive says whether a command with these files is used from a keyboard,
// and is not part of a pipeline.
func interactive(in, out *os.File) bool {
	return term.IsTerminal(int(in.Fd())) && term.IsTerminal(int(out.Fd()))
}

// wasGiven reports whether the command has been given the terminal.
func (t *terminal) wasGiven() bool { return t != nil && t.given }

// foreground returns the group that has the terminal, -1 for none.
func (t *terminal) foreground() int {
	pgrp, err := unix.IoctlGetInt(t.fd, unix.TIOCGPGRP)
	if err != nil {
		return -1
	}
	return pgrp
}

// give makes the command's group the foreground, if this process's group is.
func (t *terminal) give() bool {
	if t == nil || t.foreground() != t.own {
		return false
	}
	t.given = unix.IoctlSetPointerInt(t.fd, unix.TIOCSPGRP, t.group) == nil
	return t.given
}

// inForeground reports whether the command's group is the foreground.
func (t *terminal) inForeground() bool { return t != nil && t.foreground() == t.group }

// ignore ignores SIGTTOU, which stops a process that configures the terminal from
// the background, as this one does. It is called after the start of the command,
// which would inherit the setting.
func (t *terminal) ignore() {
	if t != nil && !t.ignoresTTOU {
		t.ignoresTTOU = true
		signal.Ignore(unix.SIGTTOU)
	}
}

// take makes this process's group the foreground again, if the command's is.
func (t *terminal) take() {
	if t == nil {
		return
	}
	t.ignore()
	if t.inForeground() {
		_ = unix.IoctlSetPointerInt(t.fd, unix.TIOCSPGRP, t.own)
	}
}

// suspend stops this process and its group, as the keyboard would have if the
// command had been in that group. It returns when the process is continued, and
// gives the terminal back to the command if the command had it and this process
// is in the foreground. SIGTSTP is delivered on stops.
//
// The runtime does not let a program have the default action of SIGTSTP again
// once it has caught it. So this process stops by SIGSTOP, which also stops a
// process that nobody would continue; suspend checks that first.
func (t *terminal) suspend(stops chan<- os.Signal) {
	t.take()
	if !continuable(t.own) {
		t.resume()
		return
	}
	continued := make(chan os.Signal, 1)
	signal.Notify(continued, unix.SIGCONT)
	defer signal.Stop(continued)
	if t.given { // the keyboard has reached the command's group only
		signal.Ignore(unix.SIGTSTP)
		_ = syscall.Kill(0, unix.SIGTSTP)
		signal.Notify(stops, unix.SIGTSTP)
	}
	_ = syscall.Kill(os.Getpid(), unix.SIGSTOP)
	select { // the stop may come a little after Kill has returned
	case <-continued:
	case <-time.After(time.Second):
	}
	t.resume()
}

// continuable reports whether a shell can be expected to continue a stopped
// group: the parent of one of its processes, in another group of the same
// session. POSIX calls groups without such a parent orphaned. It checks the
// parents of this process and of the group's leader.
func continuable(group int) bool {
	session, err := unix.Getsid(0)
	if err != nil {
		return false
	}
	shell := func(parent int) bool {
		s, err1 := unix.Getsid(parent)
		g, err2 := unix.Getpgid(parent)
		return err1 == nil && err2 == nil && s == session && g != group
	}
	if shell(os.Getppid()) {
		return true
	}
	out, err := exec.Command("ps", "-o", "ppid=", "-p", strconv.Itoa(group)).Output()
	if err != nil {
		return false
	}
	parent, err := strconv.Atoi(strings.TrimSpace(string(out)))
	return err == nil && shell(parent)
}

// resume gives the command the terminal again after a stop.
func (t *terminal) resume() {
	if t.wasGiven() {
		t.give()
	}
}

// restore restores the terminal's modes, for a command that was killed before it
// could.
func (t *terminal) restore() {
	if !t.wasGiven() || t.modes == nil {
		return
	}
	t.take()
	if t.foreground() == t.own {
		_ = term.Restore(t.fd, t.modes)
	}
}

// close takes the terminal back.
func (t *terminal) close() {
	if t == nil {
		return
	}
	t.take()
	_ = unix.Close(t.fd)
	signal.Reset(unix.SIGTTOU)
}
