package multiproc

import (
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// bootTime is one clock for all processes of the machine.
func bootTime() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		panic(err) // every Linux has it
	}
	return time.Duration(ts.Nano())
}

// dieWithParent has the kernel kill a client whose test has died.
func dieWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
