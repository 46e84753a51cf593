//go:build unix

package job

import (
	"cmp"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-go/holdfast/internal/cli/guard"
)

// Guard is a guard that is started before its command can be, so that the command need
// not wait for it.
type Guard struct {
	ended   chan struct{} // closed when the start has ended
	process *guardProcess
	err     error
}

// StartGuard starts a guard in the background, and returns at once. The guard writes to
// stderr, and in JSON if jsonName is not empty: the name of the lock, encoded as JSON. The
// caller either runs a Job with it or calls End.
func StartGuard(jsonName string, stderr *os.File) *Guard {
	g := &Guard{ended: make(chan struct{})}
	go func() {
		defer close(g.ended)
		g.process, g.err = startGuard(guardArguments(guard.Verb, jsonName), stderr)
	}()
	return g
}

// End ends a guard that has no command. It waits until its process has ended.
func (g *Guard) End() {
	if <-g.ended; g.process != nil {
		g.process.stop()
	}
}

// running returns the guard's process, or nil if it could not be started or has ended.
func (g *Guard) running() *guardProcess {
	if <-g.ended; g.err != nil {
		return nil
	}
	select {
	case <-g.process.gone:
		g.process.stop()
		return nil
	default:
		return g.process
	}
}

// readyGuard returns the guard that was started before, or starts one.
func (j *Job) readyGuard() (*guardProcess, error) {
	if j.Guard != nil {
		if g := j.Guard.running(); g != nil {
			return g, nil
		}
	}
	return startGuard(guardArguments(cmp.Or(j.guardVerb, guard.Verb), j.JSONName), j.Stderr)
}

// guardArguments returns the arguments that make this program a guard.
func guardArguments(verb, jsonName string) []string {
	if jsonName == "" {
		return []string{verb}
	}
	return []string{verb, jsonName}
}

// guardProcess is a running guard, as seen by the process that started it.
type guardProcess struct {
	pid     int
	process *os.Process
	to      *os.File
	gone    chan struct{} // closed when the guard has ended
	last    [guard.FrameSize]byte
}

// startGuard starts this program anew as a guard in a group of its own, and
// returns when it is ready. Its arguments make it a guard.
func startGuard(args []string, stderr *os.File) (*guardProcess, error) {
	self, err := executable()
	if err != nil {
		return nil, err
	}
	theirs, to, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	ready, up, err := os.Pipe()
	if err != nil {
		to.Close()
		return nil, err
	}
	p, err := os.StartProcess(self, append([]string{os.Args[0]}, args...), &os.ProcAttr{
		Dir:   "/", // it must not keep a file system busy
		Env:   []string{},
		Files: []*os.File{theirs, up, stderr},
		Sys:   &syscall.SysProcAttr{Setpgid: true},
	})
	up.Close()
	if err != nil {
		ready.Close()
		to.Close()
		return nil, err
	}
	g := &guardProcess{pid: p.Pid, process: p, to: to, gone: make(chan struct{})}
	word := make([]byte, 1)
	_, _ = io.ReadFull(ready, word)
	go func() { // stop reaps the guard, so that its process id stays in use until then
		_, _ = ready.Read(make([]byte, 1))
		ready.Close()
		close(g.gone)
	}()
	if word[0] != guard.Ready {
		g.stop()
		return nil, errors.New("it ended before it was ready")
	}
	return g, nil
}

// sendDeadlines sends the instants, unless they are nearly those sent last.
func (g *guardProcess) sendDeadlines(term, kill time.Time) {
	// The clock is read first, so that the instants can only be early.
	now := int64(guard.Clock())
	var f [guard.FrameSize]byte
	if !term.IsZero() {
		binary.BigEndian.PutUint64(f[:8], uint64(now+int64(time.Until(term))))
	}
	binary.BigEndian.PutUint64(f[8:], uint64(now+int64(time.Until(kill))))
	if !nearlyEqual(f, g.last) {
		g.write(f)
	}
}

// nearlyEqual reports whether two frames are equal but for the jitter of clocks.
func nearlyEqual(a, b [guard.FrameSize]byte) bool {
	for i := 0; i < guard.FrameSize; i += 8 {
		x, y := int64(binary.BigEndian.Uint64(a[i:])), int64(binary.BigEndian.Uint64(b[i:]))
		if (x == 0) != (y == 0) || max(x-y, y-x) > int64(2*time.Millisecond) {
			return false
		}
	}
	return true
}

// write sends a frame, unless the pipe is full: a stopped guard reads nothing,
// and the pipe holds thousands of frames. The attempt has no deadline, which a
// process that stands still for a moment would miss: without the last frame the
// guard takes the end of the pipe for the death of this process.
func (g *guardProcess) write(f [guard.FrameSize]byte) {
	pipe, err := g.to.SyscallConn()
	if err != nil {
		return
	}
	n := 0
	err = pipe.Write(func(fd uintptr) (done bool) {
		var failed error
		n, failed = unix.Write(int(fd), f[:])
		return !errors.Is(failed, syscall.EINTR) // of a full pipe too: it is not waited for
	})
	if err == nil && n == len(f) {
		g.last = f
	}
}

// stop ends the guard without a kill of the group, and waits for it.
func (g *guardProcess) stop() {
	g.write([guard.FrameSize]byte{})
	g.to.Close()
	select {
	case <-g.gone:
	case <-time.After(time.Second): // it may be stopped
		_ = g.process.Kill()
		<-g.gone
	}
	_, _ = g.process.Wait()
}

// executable returns this program's file; on Linux also if it was replaced or
// removed since the start.
func executable() (string, error) {
	const self = "/proc/self/exe"
	if _, err := os.Stat(self); err == nil {
		return self, nil
	}
	return os.Executable()
}
