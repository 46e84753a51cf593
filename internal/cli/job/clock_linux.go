package job

import (
	"time"

	"golang.org/x/sys/unix"
)

// bootClock is a clock that all processes of a machine share and that counts
// the time it sleeps.
func bootClock() time.Duration { return readClock(unix.CLOCK_BOOTTIME) }
