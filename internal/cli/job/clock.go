//go:build unix

package job

import (
	"time"

	"golang.org/x/sys/unix"
)

func readClock(id int32) time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(id, &ts); err != nil {
		panic("job: the system lacks a clock: " + err.Error())
	}
	return time.Duration(ts.Nano())
}
