//go:build unix && !linux

package servers

import "syscall"

// dieWithParent has no effect here: a server outlives tests that are killed.
func dieWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
