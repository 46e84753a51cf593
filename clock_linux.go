package holdfast

import (
	"syscall"
	"time"
	"unsafe"
)

// sleptSinceBoot is boot time less monotonic time, both asked of the kernel
// directly: in a synctest bubble, whose clock is not the kernel's, it is a
// constant, but for the time between the readings.
func sleptSinceBoot() time.Duration { return sleptBy(readClock) }

// sleptBy reads boot time between two readings of monotonic time, and repeats
// that while the readings are apart: the process may have been stopped in
// between. The remaining distance makes the result too long, never too short,
// so that claims end too early.
func sleptBy(read func(id uintptr) (time.Duration, bool)) (slept time.Duration) {
	const monotonic, boottime = 1, 7
	apart := time.Duration(-1)
	for range 5 {
		before, ok1 := read(monotonic)
		boot, ok2 := read(boottime)
		after, ok3 := read(monotonic)
		if !ok1 || !ok2 || !ok3 {
			return 0
		}
		if apart < 0 || after-before < apart {
			slept, apart = boot-before, after-before
		}
		if apart < 50*time.Microsecond {
			break
		}
	}
	return slept
}

func readClock(id uintptr) (time.Duration, bool) {
	var ts syscall.Timespec
	_, _, errno := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, id, uintptr(unsafe.Pointer(&ts)), 0)
	return time.Duration(ts.Nano()), errno == 0
}
