//go:build unix && !linux

package backends

import "syscall"

// dieWithParent has no means here: a server outlives tests that are killed.
func dieWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
