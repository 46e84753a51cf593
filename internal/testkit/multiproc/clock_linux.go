package multiproc

import (
	"os/exec"
	"syscall"
	"time"
	"unsafe"
)

// bootTime is one clock for all processes of the machine.
func bootTime() time.Duration {
	const boottime = 7
	var ts syscall.Timespec
	if _, _, errno := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, boottime, uintptr(unsafe.Pointer(&ts)), 0); errno != 0 {
		panic(errno) // every Linux has it
	}
	return time.Duration(ts.Nano())
}

// dieWithParent has the kernel kill a client whose test has died.
func dieWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
