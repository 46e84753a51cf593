//go:build unix && !linux

package job

import (
	"time"

	"golang.org/x/sys/unix"
)

// bootClock is a clock that all processes of a machine share. On macOS it counts
// the time that the machine sleeps.
func bootClock() time.Duration { return readClock(unix.CLOCK_MONOTONIC) }
