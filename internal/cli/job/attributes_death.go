//go:build linux || freebsd

package job

import "syscall"

// attributes returns those of the command's process: it joins the guard's group,
// and dies with the thread that started it.
func attributes(group int) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pgid: group, Pdeathsig: syscall.SIGKILL}
}
