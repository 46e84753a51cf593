package guard

import (
	"time"

	"golang.org/x/sys/unix"
)

// Clock is a clock that all processes of a machine share and that counts
// the time it sleeps.
func Clock() time.Duration { return readClock(unix.CLOCK_BOOTTIME) }
