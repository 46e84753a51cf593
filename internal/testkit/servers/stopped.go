package servers

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// awaitStop waits until all threads of a process that was sent SIGSTOP have
// stopped. The signal is taken by one of them, and until that one has its turn on a
// busy machine the others go on and answer requests. Where the system has no
// /proc, awaitStop waits for a moment.
func awaitStop(pid int) {
	time.Sleep(time.Millisecond)
	for start := time.Now(); time.Since(start) < 10*time.Second; time.Sleep(time.Millisecond) {
		switch stopped, known := isStopped(pid); {
		case stopped:
			return
		case !known && time.Since(start) > 50*time.Millisecond:
			return
		}
	}
}

// isStopped reports whether no thread of the process runs. known is false if the
// system does not tell.
func isStopped(pid int) (stopped, known bool) {
	stats, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/[0-9]*/stat", pid))
	for _, file := range stats {
		b, err := os.ReadFile(file)
		if err != nil {
			continue // the thread has ended
		}
		// The state follows the name, which is in parentheses and may contain any.
		if i := bytes.LastIndexByte(b, ')'); i >= 0 && i+2 < len(b) && !bytes.ContainsRune([]byte("TtZX"), rune(b[i+2])) {
			return false, true
		}
	}
	return len(stats) > 0, len(stats) > 0
}
