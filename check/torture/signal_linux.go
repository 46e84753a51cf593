package torture

import (
	"os/exec"
	"syscall"
)

// dieWithParent has the kernel kill a client whose run has died, also one that
// is stopped.
func dieWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

func (x *process) stop() { _ = x.cmd.Process.Signal(syscall.SIGSTOP) }

func (x *process) resume() { _ = x.cmd.Process.Signal(syscall.SIGCONT) }
