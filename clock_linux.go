package holdfast

import (
	"syscall"
	"time"
	"unsafe"
)

// sleptSinceBoot is boot time less monotonic time, both asked of the kernel
// directly: in a synctest bubble, whose clock is not the kernel's, it is a
// constant, as it should be.
func sleptSinceBoot() time.Duration {
	const monotonic, boottime = 1, 7
	boot, ok1 := readClock(boottime)
	mono, ok2 := readClock(monotonic)
	if !ok1 || !ok2 {
		return 0
	}
	// Rounded, because the two clocks are not read at one instant.
	return (boot - mono).Round(10 * time.Millisecond)
}

func readClock(id uintptr) (time.Duration, bool) {
	var ts syscall.Timespec
	_, _, errno := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, id, uintptr(unsafe.Pointer(&ts)), 0)
	return time.Duration(ts.Nano()), errno == 0
}
