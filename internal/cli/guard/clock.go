//go:build unix

package guard

import (
	"time"

	"golang.org/x/sys/unix"
)

func readClock(id int32) time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(id, &ts); err != nil {
		panic("guard: the system lacks a clock: " + err.Error())
	}
	return time.Duration(ts.Nano())
}
