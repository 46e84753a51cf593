package sqlitelock

import (
	"errors"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// sinceBoot returns the time since the machine started, including sleep. All
// processes of the machine read the same clock, and nobody sets it.
func sinceBoot() (time.Duration, error) {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return 0, os.NewSyscallError("clock_gettime", err)
	}
	return time.Duration(ts.Nano()), nil
}

// bootID names the origin of sinceBoot: this boot of the kernel, as seen from
// this time namespace.
func bootID() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", err
	}
	id := strings.TrimSpace(string(b))
	if id == "" {
		return "", errors.New("the kernel's boot id is empty")
	}
	// A kernel without time namespaces has no such link, and needs none.
	ns, _ := os.Readlink("/proc/self/ns/time")
	return id + " " + ns, nil
}

// nap sleeps. Unlike time.Sleep on Linux, it is precise to fractions of a
// millisecond.
func nap(d time.Duration) {
	ts := unix.NsecToTimespec(int64(d))
	_ = unix.Nanosleep(&ts, nil)
}
