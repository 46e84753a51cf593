package sqlitelock

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// sinceBoot is the time since the machine started, counted while it sleeps
// too: on this system that is what CLOCK_MONOTONIC counts.
func sinceBoot() (time.Duration, error) {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		return 0, os.NewSyscallError("clock_gettime", err)
	}
	return time.Duration(ts.Nano()), nil
}

// bootID names what sinceBoot counts from.
func bootID() (string, error) {
	id, err := unix.Sysctl("kern.bootsessionuuid")
	return id, os.NewSyscallError("sysctl", err)
}

// nap sleeps for a fraction of a millisecond.
func nap(d time.Duration) { time.Sleep(d) }
