//go:build darwin || freebsd

package cli

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// peerUser returns the user of the process at the other end of a Unix socket.
func peerUser(fd int) (uint32, error) {
	c, err := unix.GetsockoptXucred(fd, unix.SOL_LOCAL, unix.LOCAL_PEERCRED)
	if err != nil {
		return 0, err
	}
	return c.Uid, nil
}

// limitSilence does nothing: the system has no such limit.
func limitSilence(_, _ string, _ syscall.RawConn) error { return nil }
