//go:build unix && !linux

package guard

import (
	"time"

	"golang.org/x/sys/unix"
)

// Clock is a clock that all processes of a machine share. On macOS it counts
// the time that the machine sleeps.
func Clock() time.Duration { return readClock(unix.CLOCK_MONOTONIC) }
