package checker

import "golang.org/x/sys/unix"

// Now reads CLOCK_BOOTTIME in nanoseconds: one clock for all processes of a
// machine, which includes sleep. It is read from the kernel, so a synctest
// bubble does not affect it.
func Now() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		panic(err) // every Linux has this clock
	}
	return ts.Nano()
}
