//go:build unix

// Package job runs a command that must not outlive a deadline which somebody
// else keeps moving on, such as the end of a lease.
//
// The command has a process group of its own, which is stopped as a whole. The
// leader of that group is not the command but a guard: a small process, made of
// the same program (see [Guard]), that does nothing but wait. It makes the
// deadline binding also for a process that can no longer see to it:
//
//   - When this process is killed, the guard kills the group at once. On Linux
//     and FreeBSD the kernel kills the command besides, should the guard have
//     been killed as well.
//   - When this process stands still (stopped, or starved), the guard stops the
//     group before the deadline that it was told last.
//   - The number of the group stays in use, so no signal can reach a stranger,
//     and the terminal can be given to the group before the command runs.
package job

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Job is a command to run, and until when. All fields but Longest and Notice
// have to be set.
type Job struct {
	Path                  string   // the program
	Args                  []string // its arguments, with its name as the first
	Env                   []string
	Stdin, Stdout, Stderr *os.File // given to the command as they are
	GuardArgs             []string // arguments that make this program call Guard

	// Deadline is when nothing of the command may run any more. It is asked
	// again and again, and may move on.
	Deadline func() time.Time
	// Over is closed when the deadline has come earlier than Deadline said.
	Over <-chan struct{}
	// Grace is how long before the deadline the command is told to stop.
	Grace time.Duration
	// Longest is how long the command may run in any case, 0 for no limit. It
	// is told to stop Grace, or a fifth of Longest, before.
	Longest time.Duration
	// Signals are passed on to the command; see [Signals].
	Signals <-chan os.Signal
	// Notice is told what happens. It is called by Run's goroutine.
	Notice func(Notice)
}

// Reason says why a command was stopped.
type Reason string

// The reasons. The empty Reason is that of a command which ended by itself.
const (
	Doubt   Reason = "the deadline came near" // and was not moved on
	Over    Reason = "the deadline is over"
	Longest Reason = "the command ran for the longest time allowed"
)

// Notice is one thing that happened to a command.
type Notice struct {
	Kind   Kind
	Reason Reason        // of Stopping and Killing
	PID    int           // of Started
	Left   time.Duration // until the deadline, of Stopping, Killing and Suspended
}

// Kind says what a Notice is about.
type Kind string

// The kinds of notices.
const (
	Started   Kind = "started"   // the command runs
	Stopping  Kind = "stopping"  // it was sent SIGTERM
	Killing   Kind = "killing"   // its group was sent SIGKILL
	Suspended Kind = "suspended" // it was stopped from the keyboard; this process stops as well
	Unguarded Kind = "unguarded" // the guard is gone
)

// Result is how a command ended.
type Result struct {
	Status      syscall.WaitStatus
	Stopped     Reason // why it was stopped, empty if it was not
	Interrupted bool   // SIGINT ended it while it had the terminal
}

// Code is the exit status as shells show it: the command's own, or 128 and the
// number of the signal that ended it.
func (r Result) Code() int {
	if r.Status.Signaled() {
		return 128 + int(r.Status.Signal())
	}
	return r.Status.ExitStatus()
}

// StartError says that the command could not be started. Everything else that
// goes wrong is another error.
type StartError struct{ Err error }

// Error is the operating system's reason.
func (e *StartError) Error() string { return e.Err.Error() }

// Unwrap returns that reason.
func (e *StartError) Unwrap() error { return e.Err }

// run is one run of a Job. One goroutine owns it.
type run struct {
	*Job
	guard    *guard
	pid      int
	terminal *terminal
	limits   limits
	stops    chan os.Signal // SIGTSTP and SIGCONT to this process

	stopping Reason    // why it was sent SIGTERM
	killAt   time.Time // since it was
	killed   bool
}

// Run runs the command and returns when it has ended: with a *StartError when
// it did not run, and another error when that, or its guard, could not be
// brought about. It blocks, and keeps its thread, as long as the command lives:
// a process that cannot be killed holds it up.
func (j *Job) Run() (Result, error) {
	if j.Notice == nil {
		j.Notice = func(Notice) {}
	}
	// The kernel sends the parent-death signal when the thread ends that
	// started the command.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()

	g, err := startGuard(j.GuardArgs, j.Stderr)
	if err != nil {
		return Result{}, fmt.Errorf("starting the guard of the command: %w", err)
	}
	defer g.stop()
	r := &run{Job: j, guard: g, limits: newLimits(j.Grace, j.Longest), stops: make(chan os.Signal, 8)}
	if why, _ := r.limits.look(time.Now(), j.Deadline(), r.isOver()); why != "" {
		return Result{Stopped: why}, &StartError{fmt.Errorf("not started: %s", why)}
	}
	r.tellGuard()

	r.terminal = openTerminal(g.pid)
	defer r.terminal.close()
	if interactive(j.Stdin, j.Stdout) {
		r.terminal.give()
	}
	p, err := os.StartProcess(j.Path, j.Args, &os.ProcAttr{
		Env: j.Env, Files: []*os.File{j.Stdin, j.Stdout, j.Stderr},
		Sys: attributes(g.pid),
	})
	r.terminal.ignore()
	if err != nil {
		return Result{}, &StartError{err}
	}
	r.pid = p.Pid
	_ = p.Release() // waited for below, for stops as well
	r.Notice(Notice{Kind: Started, PID: r.pid})
	status := r.loop()
	return r.result(status), nil
}

// loop is where Run spends its time.
func (r *run) loop() syscall.WaitStatus {
	changes := make(chan syscall.WaitStatus)
	go watch(r.pid, changes)
	timer := time.NewTimer(0)
	defer timer.Stop()
	signal.Notify(r.stops, unix.SIGTSTP, unix.SIGCONT)
	defer signal.Stop(r.stops)
	over, unguarded := r.Over, (<-chan struct{})(r.guard.gone)
	for {
		select {
		case status := <-changes:
			if !status.Stopped() {
				return status
			}
			r.stopped(status.StopSignal())
		case s := <-r.Signals:
			r.forward(s.(syscall.Signal))
			continue
		case s := <-r.stops:
			r.forward(s.(syscall.Signal))
		case <-over:
			over = nil
		case <-timer.C:
		case <-unguarded:
			if unguarded = nil; r.killed {
				continue // with the rest of the group
			}
			r.Notice(Notice{Kind: Unguarded})
		}
		timer.Reset(r.look())
	}
}

// watch reports every change of the process, the last one being its end.
func watch(pid int, changes chan<- syscall.WaitStatus) {
	for {
		var status syscall.WaitStatus
		_, err := syscall.Wait4(pid, &status, syscall.WUNTRACED, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
			continue
		case err != nil: // cannot happen: nobody else waits for it
			status = 255 << 8
		}
		changes <- status
		if !status.Stopped() {
			return
		}
	}
}

// look does what the time asks for, and returns when to look again.
func (r *run) look() time.Duration {
	r.tellGuard()
	now := time.Now()
	over := r.isOver()
	why, next := r.limits.look(now, r.Deadline(), over)
	if why != "" && r.stopping == "" {
		r.stopping = why
		r.killAt = r.limits.killAt(r.Deadline())
		if !over && now.Before(r.killAt) {
			r.Notice(Notice{Stopping, why, 0, time.Until(r.Deadline())})
			r.signal(syscall.SIGTERM)
			r.signal(syscall.SIGCONT) // whoever is stopped could not act on it
			r.tellGuard()
		}
	}
	if r.stopping == "" || r.killed {
		return next
	}
	// Once told to stop, it has until the time that was then known, whether
	// or not the deadline moves on again.
	if over || !now.Before(r.killAt) {
		r.killed = true
		r.Notice(Notice{Killing, r.stopping, 0, time.Until(r.Deadline())})
		r.signal(syscall.SIGKILL)
		return next
	}
	return min(next, r.killAt.Sub(now))
}

func (r *run) isOver() bool {
	select {
	case <-r.Over:
		return true
	default:
		return false
	}
}

// tellGuard gives the guard the instants at which it has to act in place of
// this process: a little later than this process would.
func (r *run) tellGuard() {
	term, kill := r.limits.ofGuard(r.Deadline())
	if r.stopping != "" {
		term = time.Time{} // it was told
		if at := r.killAt.Add(r.limits.margin / 2); at.Before(kill) {
			kill = at
		}
	}
	r.guard.tell(term, kill)
}

// signal sends a signal to the whole group.
func (r *run) signal(s syscall.Signal) { _ = syscall.Kill(-r.guard.pid, s) }

// forward passes on a signal that this process got.
func (r *run) forward(s syscall.Signal) {
	switch s {
	case syscall.SIGPIPE: // this process's own
	case syscall.SIGCONT:
		r.terminal.resume()
		r.signal(s)
	default:
		r.signal(s)
	}
}

// stopped deals with a command that was stopped. A stop that the terminal
// caused is the user's wish to have this process stop too, unless the command
// only lacks the terminal and can have it.
func (r *run) stopped(s syscall.Signal) {
	if s == syscall.SIGSTOP || r.killed || r.terminal == nil {
		return // whoever stopped it will continue it; the deadline is kept
	}
	if s == syscall.SIGTTIN || s == syscall.SIGTTOU {
		// One that has the terminal was continued twice, and stopped between the
		// two before it got it: the news of that stop are old.
		if r.terminal.give() || r.terminal.lent() {
			r.signal(syscall.SIGCONT)
			return
		}
	}
	r.Notice(Notice{Kind: Suspended, Left: time.Until(r.Deadline())})
	r.terminal.suspend(r.stops)
	r.tellGuard()
	r.signal(syscall.SIGCONT)
}

// result ends the run: of a command that was stopped nothing remains.
func (r *run) result(status syscall.WaitStatus) Result {
	res := Result{Status: status, Stopped: r.stopping}
	if r.isOver() && res.Stopped == "" {
		res.Stopped = Over
	}
	if res.Stopped == "" && status.Signaled() {
		// The guard may have acted while this process stood still.
		if s := status.Signal(); s == syscall.SIGKILL || s == syscall.SIGTERM {
			res.Stopped, _ = r.limits.look(time.Now(), r.Deadline(), false)
		}
	}
	if res.Stopped != "" {
		r.signal(syscall.SIGKILL)
	}
	interrupt := status.Signaled() && status.Signal() == syscall.SIGINT
	res.Interrupted = interrupt && r.terminal.has() && res.Stopped == ""
	if status.Signaled() {
		r.terminal.restore()
	}
	return res
}

// Signals starts to catch the signals that Run passes on to a command, and
// returns a function that ends it. Those that this process was told to ignore
// (as by nohup) stay ignored, by the command too. SIGPIPE is among them, but is
// not passed on: an output of this process that nobody reads any more must not
// end it while the command runs.
func Signals() (<-chan os.Signal, func()) {
	c := make(chan os.Signal, 64)
	for _, s := range []os.Signal{
		unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2,
		unix.SIGWINCH, unix.SIGPIPE,
	} {
		if !signal.Ignored(s) || s == unix.SIGPIPE {
			signal.Notify(c, s)
		}
	}
	return c, func() { signal.Stop(c) }
}
