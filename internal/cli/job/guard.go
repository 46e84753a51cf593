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

// What this process tells its guard, over a pipe: two instants on the clock of
// [bootClock], in nanoseconds, big endian. At the first the group is sent
// SIGTERM, unless it is 0; at the second SIGKILL. The second being 0 means that
// the command has ended and the guard's work with it. The end of the pipe means
// that this process has died, and the group has to die at once.
const frameSize = 16

// readyWord is what a guard says first.
const readyWord = 'g'

// guard is a running guard, as the process sees it that started it.
type guard struct {
	pid     int
	process *os.Process
	to      *os.File
	gone    chan struct{} // closed when the guard has ended
	last    [frameSize]byte
}

// startGuard starts this program anew as a guard in a group of its own, and
// returns when that is ready.
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
	go func() { // it is not waited for until stop, so that its number stays in use
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

// tell sends the instants, if they have changed by much.
func (g *guard) tell(term, kill time.Time) {
	// The clock is read first, so that the instants can only be early.
	now := int64(bootClock())
	var f [frameSize]byte
	if !term.IsZero() {
		binary.BigEndian.PutUint64(f[:8], uint64(now+int64(time.Until(term))))
	}
	binary.BigEndian.PutUint64(f[8:], uint64(now+int64(time.Until(kill))))
	if !alike(f, g.last) {
		g.write(f)
	}
}

// alike says whether two frames say the same but for the jitter of clocks.
func alike(a, b [frameSize]byte) bool {
	for i := 0; i < frameSize; i += 8 {
		x, y := int64(binary.BigEndian.Uint64(a[i:])), int64(binary.BigEndian.Uint64(b[i:]))
		if (x == 0) != (y == 0) || max(x-y, y-x) > int64(2*time.Millisecond) {
			return false
		}
	}
	return true
}

func (g *guard) write(f [frameSize]byte) {
	// A guard that is stopped reads nothing; the pipe holds thousands of
	// frames, and when it is full this process waits for nobody.
	_ = g.to.SetWriteDeadline(time.Now().Add(5 * time.Millisecond))
	if _, err := g.to.Write(f[:]); err == nil {
		g.last = f
	}
}

// stop ends the guard, which kills nobody then, and waits for it.
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

// Guard is the guard's own process: its group's leader, which kills that group
// when the process that started it has died, or when the time has come of which
// that process told it. It reads from in, says on out that it is ready
// (and by its end that it has ended), on stderr what it does, and returns when it is not needed any more.
func Guard(in, out *os.File, stderr io.Writer) error {
	if unix.Getpgrp() != unix.Getpid() {
		return errors.New("a guard leads a process group of its own; it is started by holdfast run")
	}
	// What is meant for the command reaches the guard as well.
	signal.Ignore(unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2,
		unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU, unix.SIGPIPE)
	if _, err := out.Write([]byte{readyWord}); err != nil {
		return err
	}
	return watchOver(int(in.Fd()), bootClock, func(s syscall.Signal, why string) {
		fmt.Fprintf(stderr, "holdfast: %s\n", why)
		_ = syscall.Kill(0, s)
		if s == syscall.SIGTERM {
			_ = syscall.Kill(0, syscall.SIGCONT)
		}
	})
}

// watchOver is the guard's loop. After any pause it reads what was written
// meanwhile before it looks at the clock, so that it never acts on old news.
func watchOver(fd int, clock func() time.Duration, act func(s syscall.Signal, why string)) error {
	var term, kill int64
	for wait := -1; ; {
		news, err := poll(fd, wait)
		if err != nil {
			return err
		}
		if news {
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
			// Not in one go: poll does not count the time that the machine
			// sleeps.
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

// poll says whether fd can be read, after at most wait milliseconds; with -1 it
// waits for ever.
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
			wait = 0 // what came while this process stood still goes first
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

// executable is this program's file; on Linux also when it was replaced or
// removed since it was started.
func executable() (string, error) {
	const self = "/proc/self/exe"
	if _, err := os.Stat(self); err == nil {
		return self, nil
	}
	return os.Executable()
}
