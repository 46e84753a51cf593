package servers

import "syscall"

// dieWithParent makes the kernel kill the server when the tests end in a way
// that runs no clean-up. A process group of its own keeps the terminal's ^C
// from reaching it before that.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
