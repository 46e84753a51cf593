package sqlitelock

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// sinceBoot returns the time since the machine started, including sleep:
// CLOCK_MONOTONIC includes it on this system.
func sinceBoot() (time.Duration, error) {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		return 0, os.NewSyscallError("clock_gettime", err)
	}
	return time.Duration(ts.Nano()), nil
}

// bootID names the origin of sinceBoot.
func bootID() (string, error) {
	id, err := unix.Sysctl("kern.bootsessionuuid")
	return id, os.NewSyscallError("sysctl", err)
}

// nap sleeps for a fraction of a millisecond.
func nap(d time.Duration) { time.Sleep(d) }
