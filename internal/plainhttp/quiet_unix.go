//go:build unix

package plainhttp

import (
	"errors"
	"syscall"
)

// isQuiet reports whether nothing has come on an idle connection: neither its end nor an
// answer that nobody has asked for.
func (c *conn) isQuiet() bool {
	sc, ok := c.nc.(syscall.Conn)
	if !ok {
		return true
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return false
	}
	quiet := false
	err = raw.Read(func(fd uintptr) bool {
		var b [1]byte
		_, err := syscall.Read(int(fd), b[:])
		quiet = errors.Is(err, syscall.EAGAIN)
		return true // never wait
	})
	return err == nil && quiet
}
