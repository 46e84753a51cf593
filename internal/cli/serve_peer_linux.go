package cli

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// peerUser returns the user of the process at the other end of a Unix socket.
func peerUser(fd int) (uint32, error) {
	c, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return 0, err
	}
	return c.Uid, nil
}

// limitSilence makes the system give up connections whose data nobody confirms.
func limitSilence(_, _ string, c syscall.RawConn) error {
	var failed error
	err := c.Control(func(fd uintptr) {
		failed = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(silentFor.Milliseconds()))
	})
	if err != nil {
		return err
	}
	return failed
}
