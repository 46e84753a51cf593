//go:build unix

// Package job runs a command that must not outlive a deadline that keeps moving
// on, such as the end of a lease.
//
// The command has a process group of its own, which is stopped as a whole. The
// leader of that group is not the command but a guard: a small process of the
// same program (see package [guard]), which only waits. The guard enforces the deadline
// when this process cannot:
//
//   - If this process is killed, the guard kills the group at once. If the guard
//     was killed as well, the kernel kills the command, on Linux and FreeBSD.
//   - If this process is stopped or starved, the guard stops the group before
//     the last deadline that it received.
//   - The id of the group stays in use, so no signal can reach another group,
//     and the group can get the terminal before the command runs.
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

// Job is a command and its deadline. All fields but MaxDuration, Notice, Guard and
// JSONName have to be set.
type Job struct {
	Path                  string   // the program
	Args                  []string // its arguments, with its name as the first
	Env                   []string
	Stdin, Stdout, Stderr *os.File // given to the command as they are

	// Deadline returns the instant after which nothing of the command may run.
	// It is called repeatedly, and its result may move on.
	Deadline func() time.Time
	// Expired is closed when the deadline has come earlier than Deadline said.
	Expired <-chan struct{}
	// Grace is the time between SIGTERM and the deadline.
	Grace time.Duration
	// MaxDuration limits the command's running time, 0 for no limit. SIGTERM is
	// sent Grace, or a fifth of MaxDuration, before its end.
	MaxDuration time.Duration
	// Signals are passed on to the command; see [Signals].
	Signals <-chan os.Signal
	// Notice is called with each event, by Run's goroutine.
	Notice func(Notice)
	// Guard was started before, with the same Stderr, or is nil: then Run starts one.
	// Run ends it in any case.
	Guard *Guard
	// JSONName makes a guard that Run starts report in JSON, with this name, encoded as
	// JSON.
	JSONName string

	guardVerb string // another argument than guard.Verb, for tests
}

// Reason is the reason for which a command was stopped.
type Reason string

// The reasons. The empty Reason stands for a command that ended by itself.
const (
	InDoubt     Reason = "the deadline came near" // and was not moved on
	Expired     Reason = "the deadline is over"
	MaxDuration Reason = "the command ran for the longest time allowed"
)

// Notice is one event of a command.
type Notice struct {
	Kind   Kind
	Reason Reason        // of Stopping and Killing
	PID    int           // of Started
	Left   time.Duration // until the deadline, or the end of MaxDuration, of Stopping, Killing and Suspended
	Grace  time.Duration // from SIGTERM to that end, of Suspended
}

// Kind is the kind of a Notice.
type Kind string

// The kinds of notices.
const (
	Started   Kind = "started"   // the command runs
	Stopping  Kind = "stopping"  // it was sent SIGTERM
	Killing   Kind = "killing"   // its group was sent SIGKILL
	Suspended Kind = "suspended" // it was stopped from the keyboard; this process stops as well
	Unguarded Kind = "unguarded" // the guard is gone
)

// Result describes the end of a command.
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

// StartError reports that the command could not be started. All other problems
// are other errors.
type StartError struct{ Err error }

// Error returns the operating system's reason.
func (e *StartError) Error() string { return e.Err.Error() }

// Unwrap returns that reason.
func (e *StartError) Unwrap() error { return e.Err }

// run is one run of a Job. One goroutine owns it.
type run struct {
	*Job
	guard    *guardProcess
	pid      int
	terminal *terminal
	limits   limits
	stops    chan os.Signal // SIGTSTP and SIGCONT to this process

	stopping Reason    // why it was sent SIGTERM
	killAt   time.Time // since it was
	killed   bool
}

// Run runs the command and returns when it has ended: with a *StartError if the
// command did not start, and with another error if its guard did not. Run blocks,
// and keeps its thread, as long as the command lives: a process that cannot be
// killed delays it.
func (j *Job) Run() (Result, error) {
	if j.Notice == nil {
		j.Notice = func(Notice) {}
	}
	// The kernel sends the parent-death signal when the thread that started the
	// command ends.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()

	g, err := j.readyGuard()
	if err != nil {
		return Result{}, fmt.Errorf("starting the guard of the command: %w", err)
	}
	defer g.stop()
	r := &run{Job: j, guard: g, limits: newLimits(j.Grace, j.MaxDuration), stops: make(chan os.Signal, 8)}
	if why, _ := r.limits.decide(time.Now(), j.Deadline(), r.isExpired()); why != "" {
		return Result{Stopped: why}, &StartError{fmt.Errorf("not started: %s", why)}
	}
	r.updateGuard()

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
	stop := reapOrphans(r.pid, g.pid)
	defer stop()
	status := r.loop()
	return r.result(status), nil
}

// groupEnds is the time that a command has to end after its guard, which kills the
// group, itself included, when this process stood still.
const groupEnds = 100 * time.Millisecond

// loop handles events until the command has ended, and returns its status.
func (r *run) loop() syscall.WaitStatus {
	changes := make(chan syscall.WaitStatus)
	go watch(r.pid, changes)
	timer := time.NewTimer(0)
	defer timer.Stop()
	signal.Notify(r.stops, unix.SIGTSTP, unix.SIGCONT)
	defer signal.Stop(r.stops)
	over, unguarded := r.Expired, (<-chan struct{})(r.guard.gone)
	var report <-chan time.Time
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
			unguarded, report = nil, time.After(groupEnds)
			continue
		case <-report:
			if r.killed {
				continue // with the rest of the group
			}
			r.Notice(Notice{Kind: Unguarded})
		}
		timer.Reset(r.decide())
	}
}

// watch reports every change of the process; the last one is its end.
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

// decide stops or kills the command when its time has come, and returns the time
// until the next decision.
func (r *run) decide() time.Duration {
	r.updateGuard()
	now := time.Now()
	over := r.isExpired()
	why, next := r.limits.decide(now, r.Deadline(), over)
	if why != "" && r.stopping == "" {
		r.stopping = why
		r.killAt = r.limits.killAt(r.Deadline())
		if !over && now.Before(r.killAt) {
			r.Notice(Notice{Kind: Stopping, Reason: why, Left: r.left(why)})
			r.signal(syscall.SIGTERM)
			r.signal(syscall.SIGCONT) // a stopped process could not act on SIGTERM
			r.updateGuard()
		}
	}
	if r.stopping == "" || r.killed {
		return next
	}
	// After SIGTERM the command has until the killAt of that moment, even if the
	// deadline moves on again.
	if over || !now.Before(r.killAt) {
		r.killed = true
		r.Notice(Notice{Kind: Killing, Reason: r.stopping, Left: r.left(r.stopping)})
		r.signal(syscall.SIGKILL)
		return next
	}
	return min(next, r.killAt.Sub(now))
}

// left returns the time that is left to the command, which was stopped for why.
func (r *run) left(why Reason) time.Duration {
	left := time.Until(r.Deadline())
	switch why {
	case MaxDuration:
		return time.Until(r.limits.start.Add(r.MaxDuration))
	case Expired: // maybe earlier than Deadline said
		return min(left, 0)
	}
	return left
}

func (r *run) isExpired() bool {
	select {
	case <-r.Expired:
		return true
	default:
		return false
	}
}

// updateGuard sends the guard the instants at which it acts in place of this
// process: a little later than this process would.
func (r *run) updateGuard() {
	term, kill := r.limits.guardTimes(r.Deadline())
	if r.stopping != "" {
		term = time.Time{} // already sent
		if at := r.killAt.Add(r.limits.margin / 2); at.Before(kill) {
			kill = at
		}
	}
	r.guard.sendDeadlines(term, kill)
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

// stopped handles a stop of the command. If the terminal caused it, the user
// wants this process to stop too, unless the command only lacks the terminal and
// can have it.
func (r *run) stopped(s syscall.Signal) {
	if s == syscall.SIGSTOP || r.killed || r.terminal == nil {
		return // another process stopped it and will continue it; the deadline stands
	}
	if s == syscall.SIGTTIN || s == syscall.SIGTTOU {
		// A command that has the terminal was continued twice, and stopped between
		// the two, before it got the terminal: this stop is an old one.
		if r.terminal.give() || r.terminal.inForeground() {
			r.signal(syscall.SIGCONT)
			return
		}
	}
	end, grace := r.limits.end(r.Deadline())
	r.Notice(Notice{Kind: Suspended, Left: time.Until(end), Grace: grace})
	r.terminal.suspend(r.stops)
	r.updateGuard()
	r.signal(syscall.SIGCONT)
}

// result ends the run. It kills what remains of a command that was stopped.
func (r *run) result(status syscall.WaitStatus) Result {
	res := Result{Status: status, Stopped: r.stopping}
	if r.isExpired() && res.Stopped == "" {
		res.Stopped = Expired
	}
	if res.Stopped == "" && status.Signaled() {
		// The guard may have acted while this process was stopped.
		if s := status.Signal(); s == syscall.SIGKILL || s == syscall.SIGTERM {
			res.Stopped, _ = r.limits.decide(time.Now(), r.Deadline(), false)
		}
	}
	if res.Stopped != "" {
		r.signal(syscall.SIGKILL)
	}
	interrupt := status.Signaled() && status.Signal() == syscall.SIGINT
	res.Interrupted = interrupt && r.terminal.wasGiven() && res.Stopped == ""
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
