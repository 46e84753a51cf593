package torture

import (
	"os/exec"
	"syscall"
)

// dieWithParent lets the kernel kill a client when its run dies, even a stopped
// client.
func dieWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

func (x *process) stop() { _ = x.cmd.Process.Signal(syscall.SIGSTOP) }

func (x *process) resume() { _ = x.cmd.Process.Signal(syscall.SIGCONT) }
