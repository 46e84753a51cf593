//go:build unix && !linux && !darwin && !freebsd

package cli

import (
	"errors"
	"syscall"
)

// peerUser returns an error: how the system tells the user of a Unix peer is not
// known here.
func peerUser(int) (uint32, error) { return 0, errors.ErrUnsupported }

// limitSilence does nothing: the system has no such limit.
func limitSilence(_, _ string, _ syscall.RawConn) error { return nil }
