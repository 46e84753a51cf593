//go:build unix && !linux

package torture

import (
	"os/exec"
	"syscall"
)

// dieWithParent does nothing here: a client ends when its input ends.
func dieWithParent(*exec.Cmd) {}

func (x *process) stop() { _ = x.cmd.Process.Signal(syscall.SIGSTOP) }

func (x *process) resume() { _ = x.cmd.Process.Signal(syscall.SIGCONT) }
