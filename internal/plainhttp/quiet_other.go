//go:build !unix

package plainhttp

import (
	"errors"
	"os"
	"time"
)

// isQuiet reports whether nothing has come on an idle connection: neither its end nor an
// answer that nobody has asked for.
func (c *conn) isQuiet() bool {
	if c.nc.SetReadDeadline(time.Now().Add(time.Millisecond)) != nil {
		return false
	}
	var b [1]byte
	_, err := c.nc.Read(b[:])
	return errors.Is(err, os.ErrDeadlineExceeded) && c.nc.SetReadDeadline(time.Time{}) == nil
}
