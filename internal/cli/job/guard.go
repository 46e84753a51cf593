//go:build unix

package job

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// frameSize is the size of a message to the guard, over a pipe: two instants on
// the clock of [bootClock], in nanoseconds, big endian. At the first the guard
// sends the group SIGTERM, unless it is 0; at the second SIGKILL. If the second is
// 0, the command has ended and the guard's work with it. The end of the pipe
// means that this process has died, and the group has to die at once.
const frameSize = 16

// readyWord is the first byte that a guard writes.
const readyWord = 'g'

// guard is a running guard, as seen by the process that started it.
type guard struct {
	pid     int
	process *os.Process
	to      *os.File
	gone    chan struct{} // closed when the guard has ended
	last    [frameSize]byte
}

// startGuard starts this program anew as a guard in a group of its own, and
// returns when it is ready.
func startGuard(args []string, stderr *os.File) (*guard, error) {
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
	g := &guard{pid: p.Pid, process: p, to: to, gone: make(chan struct{})}
	word := make([]byte, 1)
	_, _ = io.ReadFull(ready, word)
	go func() { // stop reaps the guard, so that its process id stays in use until then
		_, _ = ready.Read(make([]byte, 1))
		ready.Close()
		close(g.gone)
	}()
	if word[0] != readyWord {
		g.stop()
		return nil, errors.New("it ended before it was ready")
	}
	return g, nil
}

// sendDeadlines sends the instants, unless they are nearly those sent last.
func (g *guard) sendDeadlines(term, kill time.Time) {
	// The clock is read first, so that the instants can only be early.
	now := int64(bootClock())
	var f [frameSize]byte
	if !term.IsZero() {
		binary.BigEndian.PutUint64(f[:8], uint64(now+int64(time.Until(term))))
	}
	binary.BigEndian.PutUint64(f[8:], uint64(now+int64(time.Until(kill))))
	if !nearlyEqual(f, g.last) {
		g.write(f)
	}
}

// nearlyEqual reports whether two frames are equal but for the jitter of clocks.
func nearlyEqual(a, b [frameSize]byte) bool {
	for i := 0; i < frameSize; i += 8 {
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
func (g *guard) write(f [frameSize]byte) {
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
func (g *guard) stop() {
	g.write([frameSize]byte{})
	g.to.Close()
	select {
	case <-g.gone:
	case <-time.After(time.Second): // it may be stopped
		_ = g.process.Kill()
		<-g.gone
	}
	_, _ = g.process.Wait()
}

// Guard is the main function of the guard's process. It leads its process group,
// and kills that group when the process that started it has died, or at the
// deadline that this process sent. It reads deadlines from in and writes to out
// that it is ready; the end of out tells that the guard has ended. It reports on
// stderr, and returns when it is not needed any more.
func Guard(in, out *os.File, stderr io.Writer) error {
	if unix.Getpgrp() != unix.Getpid() {
		return errors.New("a guard leads a process group of its own; it is started by holdfast run")
	}
	// Signals for the command reach the guard as well.
	signal.Ignore(unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2,
		unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU, unix.SIGPIPE)
	if _, err := out.Write([]byte{readyWord}); err != nil {
		return err
	}
	return guardLoop(int(in.Fd()), bootClock, func(s syscall.Signal, why string) {
		fmt.Fprintf(stderr, "holdfast: %s\n", why)
		_ = syscall.Kill(0, s)
		if s == syscall.SIGTERM {
			_ = syscall.Kill(0, syscall.SIGCONT)
		}
	})
}

// guardLoop waits for frames and deadlines. After any pause it reads new frames
// before the clock, so that it never acts on an old deadline.
func guardLoop(fd int, clock func() time.Duration, act func(s syscall.Signal, why string)) error {
	var term, kill int64
	for wait := -1; ; {
		ready, err := poll(fd, wait)
		if err != nil {
			return err
		}
		if ready {
			var f [frameSize]byte
			switch err := readFrame(fd, f[:]); {
			case errors.Is(err, io.EOF):
				act(syscall.SIGKILL, "holdfast itself has ended; the command it ran is killed")
				return nil
			case err != nil:
				return err
			case f == [frameSize]byte{}:
				return nil
			}
			term = int64(binary.BigEndian.Uint64(f[:8]))
			kill = int64(binary.BigEndian.Uint64(f[8:]))
			wait = 0
			continue
		}
		now := int64(clock())
		if kill != 0 && now >= kill {
			act(syscall.SIGKILL, "holdfast itself stands still and the lock is about to end; the command is killed")
			return nil
		}
		if term != 0 && now >= term {
			act(syscall.SIGTERM, "holdfast itself stands still and the lock will end; the command is told to stop")
			term = 0
		}
		wait = -1
		if next := earliest(term, kill); next != 0 {
			// At most a second at a time: poll does not count the time that the
			// machine sleeps.
			wait = int(min(max(time.Duration(next-now), time.Millisecond), time.Second) / time.Millisecond)
		}
	}
}

func earliest(a, b int64) int64 {
	if a != 0 && a < b {
		return a
	}
	return b
}

// poll reports whether fd can be read, after at most wait milliseconds; with -1
// it waits for ever.
func poll(fd, wait int) (bool, error) {
	fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(fds, wait)
		switch {
		case errors.Is(err, unix.EINTR):
			wait = 0 // look at the clock
		case err != nil:
			return false, fmt.Errorf("poll: %w", err)
		case n == 0 && wait != 0:
			wait = 0 // frames that came while this process was stopped go first
		default:
			return n > 0, nil
		}
	}
}

func readFrame(fd int, f []byte) error {
	for n := 0; n < len(f); {
		m, err := unix.Read(fd, f[n:])
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return fmt.Errorf("read: %w", err)
		case m == 0:
			return io.EOF
		default:
			n += m
		}
	}
	return nil
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
