package job

import (
	"bytes"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"
)

// reapOrphans waits for the orphans that become children of this process, until
// the function that it returns is called: as the first process of a container,
// or as a subreaper, this process gets the children of those that end before
// them, and nobody else waits for them. Its own children, the command and the
// guard, are left to those that started them.
func reapOrphans(own ...int) (stop func()) {
	if !adoptsOrphans() {
		return func() {}
	}
	childEnded := make(chan os.Signal, 1)
	signal.Notify(childEnded, unix.SIGCHLD)
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			reapOnce(own)
			select {
			case <-childEnded:
			case <-done:
				return
			}
		}
	}()
	return func() {
		signal.Stop(childEnded)
		close(done)
		<-ended
	}
}

// adoptsOrphans reports whether orphans below this process become its children.
func adoptsOrphans() bool {
	if os.Getpid() == 1 {
		return true
	}
	var on int32
	err := unix.Prctl(unix.PR_GET_CHILD_SUBREAPER, uintptr(unsafe.Pointer(&on)), 0, 0, 0)
	return err == nil && on != 0
}

// reapOnce waits for each ended child of this process that is not one of own.
func reapOnce(own []int) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return // without /proc an orphan cannot be told from an own child
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || slices.Contains(own, pid) {
			continue
		}
		if state, parent := statOf(pid); state == 'Z' && parent == os.Getpid() {
			_, _ = unix.Wait4(pid, nil, unix.WNOHANG, nil)
		}
	}
}

// statOf returns a process's state and its parent, zeros if it is gone. Its
// name, in brackets, may contain anything.
func statOf(pid int) (state byte, parent int) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, 0
	}
	fields := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	if len(fields) < 2 {
		return 0, 0
	}
	parent, _ = strconv.Atoi(string(fields[1]))
	return fields[0][0], parent
}
