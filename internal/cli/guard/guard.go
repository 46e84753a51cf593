//go:build unix

// Package guard is the second process of holdfast run, the guard of its command. It
// is started as this program with the argument [Verb], and kills its process group
// in place of a holdfast that has died or stands still.
//
// The guard runs in the initialization of this package. Packages are initialized
// in the order of their paths as far as their imports allow (the Go specification,
// "Program initialization"), so most packages of the stores' client libraries come
// later. The guard needs a third of the processor time of a start of the whole
// program, and the command of a run starts the sooner. This package imports little
// for that reason.
package guard

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

// Verb is the first argument of a guard. A second one is the name of the lock as JSON
// has it: with it, the guard reports in JSON.
const Verb = "guard"

// FrameSize is the size of a message to the guard, over a pipe: two instants on
// the clock of [Clock], in nanoseconds, big endian. At the first the guard sends
// the group SIGTERM, unless it is 0; at the second SIGKILL. If the second is 0, the
// command has ended and the guard's work with it. The end of the pipe means that
// the process that started the guard has died, and the group has to die at once.
const FrameSize = 16

// Ready is the first byte that a guard writes.
const Ready = 'g'

func init() {
	if len(os.Args) < 2 || len(os.Args) > 3 || os.Args[1] != Verb {
		return
	}
	name := ""
	if len(os.Args) == 3 {
		name = os.Args[2]
	}
	if err := run(os.Stdin, os.Stdout, os.Stderr, name); err != nil {
		fmt.Fprintf(os.Stderr, "holdfast: %v\n", err)
		syscall.Exit(1)
	}
	syscall.Exit(0) // at once: os.Exit lets the race detector sleep
}

// run is the main function of the guard's process. It leads its process group,
// and kills that group when the process that started it has died, or at the
// deadline that this process sent. It reads frames from in and writes Ready to
// out; the end of out tells that the guard has ended. It reports on stderr, in JSON if
// name is given, and returns when it is not needed any more.
func run(in, out *os.File, stderr io.Writer, name string) error {
	if unix.Getpgrp() != unix.Getpid() {
		return errors.New("a guard leads a process group of its own; it is started by holdfast run")
	}
	// Signals for the command reach the guard as well.
	signal.Ignore(unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2,
		unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU, unix.SIGPIPE)
	if _, err := out.Write([]byte{Ready}); err != nil {
		return err
	}
	return loop(int(in.Fd()), Clock, func(s syscall.Signal, why string) {
		fmt.Fprintln(stderr, report(s, why, name, time.Now()))
		_ = syscall.Kill(0, s)
		if s == syscall.SIGTERM {
			_ = syscall.Kill(0, syscall.SIGCONT)
		}
	})
}

// report returns the line that tells of a signal to the group: as text, or as the event
// of holdfast run if name is given. Package encoding/json would make each start longer.
func report(s syscall.Signal, why, name string, now time.Time) string {
	if name == "" {
		return "holdfast: " + why
	}
	event := "killing"
	if s == syscall.SIGTERM {
		event = "stopping"
	}
	return fmt.Sprintf(`{"event":"%s","time":"%s","name":%s,"by":"guard","reason":"%s"}`, event, now.Format(time.RFC3339Nano), name, why)
}

// loop waits for frames and deadlines. After any pause it reads new frames
// before the clock, so that it never acts on an old deadline.
func loop(fd int, clock func() time.Duration, act func(s syscall.Signal, why string)) error {
	var term, kill int64
	for wait := -1; ; {
		ready, err := poll(fd, wait)
		if err != nil {
			return err
		}
		if ready {
			var f [FrameSize]byte
			switch err := ReadFrame(fd, f[:]); {
			case errors.Is(err, io.EOF) && kill == 0: // no command was started
				return nil
			case errors.Is(err, io.EOF):
				act(syscall.SIGKILL, "holdfast itself has ended; the command it ran is killed")
				return nil
			case err != nil:
				return err
			case f == [FrameSize]byte{}:
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

// ReadFrame reads a whole frame from the pipe fd. Its error is [io.EOF] at the end
// of the pipe.
func ReadFrame(fd int, f []byte) error {
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
