//go:build unix

package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/cli/job"
)

// runner is one invocation of run.
type runner struct {
	*app
	name string
	argv []string
	path string // of the command

	wait              time.Duration // negative: for ever
	noWait            bool
	ttl               time.Duration
	grace             time.Duration
	maxHold           time.Duration
	shared, exclusive bool
	slots             int
	owner, note       string
	lead              bool
	oncePer, slotText string
	slot              time.Time // with oncePer

	loc          location
	client       *holdfast.Client
	guard        *job.Guard // of the command, started with the wait for the lock
	signals      runSignals
	startedAt    time.Time
	renewalError atomic.Pointer[error] // the last one
	show         atomic.Pointer[waitDisplay]
	unconfirmed  bool // the store has not confirmed the release in its time
}

// minMaxHold is the least --max-hold. A command that is told to stop has a fifth of it
// to do so, and a process takes some hundredths of a second to start or to end: with
// less, no command would do anything, and --lead would start it again and again.
const minMaxHold = time.Second

func (a *app) run() *cobra.Command {
	r := &runner{app: a}
	cmd := &cobra.Command{
		Use:   "run [flags] NAME -- COMMAND [ARGUMENT...]",
		Short: "Run a command while holding a lock",
		Long:  runLong, Example: runExample,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := r.arguments(cmd, args); err != nil {
				return r.fail(err)
			}
			return r.execute()
		},
	}
	f := cmd.Flags()
	f.DurationVar(&r.wait, "wait", -1, "wait no longer than `DURATION`; 0 is --no-wait (default: as long as it takes)")
	f.Lookup("wait").DefValue = "0s" // so that help shows none
	f.BoolVar(&r.noWait, "no-wait", false, "do not wait: give up when the lock is held")
	f.DurationVar(&r.ttl, "ttl", 0, "how long a holder that died keeps the lock from others (default: "+
		holdfast.DefaultTTL.String()+", or the nearest that the store allows)")
	f.DurationVar(&r.grace, "grace", 0, "stop the command so long before the lease ends without a renewal (default: a quarter of the TTL)")
	f.DurationVar(&r.maxHold, "max-hold", 0, "stop the command before it has held the lock for `DURATION`, at least 1s")
	f.BoolVar(&r.shared, "shared", false, "hold NAME as a read/write lock, beside other readers")
	f.BoolVar(&r.exclusive, "exclusive", false, "hold NAME as a read/write lock, alone")
	f.IntVar(&r.slots, "slots", 0, "hold one of `N` slots of NAME, a semaphore")
	f.StringVar(&r.owner, "owner", "", "hold together with all who name this owner: it names a job, not a service")
	f.BoolVar(&r.lead, "lead", false, "run the command whenever this run leads: wait again and start it anew when the lock was lost")
	f.StringVar(&r.oncePer, "once-per", "", "run the command once for each `PERIOD`, on one machine of all: day, week, month (local time), or a duration below 24h (UTC)")
	f.StringVar(&r.slotText, "slot", "", "with --once-per: the `TIME` for which the command runs, in RFC 3339 (default: the start of the present period)")
	f.StringVar(&r.note, "note", "", "text for those who look who holds the lock (default: the name of the command's program)")
	f.BoolVarP(&r.console.quiet, "quiet", "q", false, "say neither that it waits nor which store it uses")
	return cmd
}

// arguments makes the checks that need no store.
func (r *runner) arguments(cmd *cobra.Command, args []string) error {
	dash := cmd.ArgsLenAtDash()
	switch {
	case len(args) == 0:
		return usage("NAME and COMMAND are missing")
	case dash < 0:
		return usage("the command is given after --, as in: holdfast run %s -- COMMAND", shown(args[0]))
	case dash != 1:
		return usage("one NAME is wanted before --, not %d", dash)
	case len(args) == 1:
		return usage("COMMAND is missing after --")
	case args[0] == "":
		return usage("NAME is empty")
	case args[1] == "":
		return usage("COMMAND is empty")
	}
	for _, group := range [][]string{{"shared", "exclusive", "slots"}, {"wait", "no-wait"}, {"slots", "owner"},
		{"lead", "wait"}, {"lead", "no-wait"}, {"lead", "shared"}, {"lead", "exclusive"}, {"lead", "slots"},
		{"once-per", "lead"}, {"once-per", "shared"}, {"once-per", "exclusive"}, {"once-per", "slots"}, {"once-per", "owner"}} {
		if err := oneOf(cmd, group...); err != nil {
			return err
		}
	}
	r.name, r.argv = args[0], args[1:]
	flags := cmd.Flags()
	switch {
	case flags.Changed("wait") && r.wait < 0:
		return usage("--wait %v is negative", r.wait)
	case flags.Changed("ttl") && r.ttl <= 0:
		return usage("--ttl %v is not positive", r.ttl)
	case flags.Changed("grace") && r.grace <= 0:
		return usage("--grace %v is not positive", r.grace)
	case flags.Changed("max-hold") && r.maxHold < minMaxHold:
		return usage("--max-hold %v is below %v", r.maxHold, minMaxHold)
	case flags.Changed("slots") && (r.slots < 1 || r.slots > math.MaxInt32):
		return usage("--slots %d is not a number of slots", r.slots)
	}
	for _, flag := range []string{"once-per", "slot", "owner"} {
		if flags.Changed(flag) && flags.Lookup(flag).Value.String() == "" { // of an unset variable
			return usage("--%s is empty", flag)
		}
	}
	if err := r.checkOnce(flags.Changed("slot")); err != nil {
		return err
	}
	r.noWait = r.noWait || r.wait == 0
	if r.ttl > 0 {
		if err := r.checkGrace(); err != nil {
			return err
		}
	}
	if !flags.Changed("note") {
		r.note = programName(r.argv[0])
	}
	// A misspelt command is reported now, not after an hour of waiting.
	path, err := exec.LookPath(r.argv[0])
	if err != nil && !errors.Is(err, exec.ErrDot) {
		return notRun(r.argv[0], err)
	}
	r.path = path
	return nil
}

// checkGrace sets the default grace, or checks the one given. It needs the TTL,
// which is known without --ttl only when the store is open.
func (r *runner) checkGrace() error {
	switch {
	case r.grace == 0:
		r.grace = r.ttl / 4
	case r.grace > r.ttl/2:
		return usage("--grace %v is not between 0 and half of the TTL, %v", r.grace, r.ttl/2)
	}
	return nil
}

// programName returns the default note: no arguments, since they may hold
// secrets.
func programName(command string) string {
	name := strings.Map(func(c rune) rune {
		if unicode.IsControl(c) || c == utf8.RuneError {
			return '?'
		}
		return c
	}, filepath.Base(command))
	if len(name) > 100 {
		name = strings.ToValidUTF8(name[:100], "")
	}
	return name
}

// execute waits for the lock and runs the command.
func (r *runner) execute() error {
	// Standard error may be a pipe without a reader. From here on a write to it
	// does not end this process.
	signals, stop := job.Signals()
	defer stop()
	r.signals.c = signals
	r.startedAt = time.Now()

	switch {
	case r.lead:
		return r.executeLead()
	case r.oncePer != "":
		return r.executeOnce()
	}
	hold, err := r.acquire()
	defer r.close()
	if err != nil {
		return r.failedWait(err)
	}
	return r.command(hold)
}

// failedWait returns the error of a wait that ended without the lock.
func (r *runner) failedWait(err error) error {
	var by *signalError
	r.interrupted = errors.As(err, &by) && by.signal == syscall.SIGINT
	return r.fail(err)
}

// command runs the command under the hold, and releases it.
func (r *runner) command(hold *holdfast.Hold) error {
	res, err := r.job(hold, r.environment(hold, os.Environ())).Run()
	over := hold.Err() // read at the instant at which the command had ended
	released := r.release(hold)
	if over == nil && errors.Is(released, holdfast.ErrLost) {
		over = released
	}
	if lost := res.Stopped != "" || over != nil; lost && r.lead && r.signals.stop.Load() == nil {
		return &lostTerm{r.lost(res.Stopped, over)}
	}
	return r.outcome(res, err, over, released)
}

// job returns the command, guarded by the hold.
func (r *runner) job(hold *holdfast.Hold, env []string) *job.Job {
	return &job.Job{
		Path: r.path, Args: r.argv, Env: env,
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		Deadline: hold.Deadline, Expired: hold.Context().Done(),
		Grace: r.grace, MaxDuration: r.maxHold,
		Signals: r.signals.c,
		Notice:  r.notice, JSONName: r.guardName(), Guard: r.guard,
	}
}

// guardName returns the name in the guard's events, "" without --json.
func (r *runner) guardName() string {
	if !r.console.json {
		return ""
	}
	encoded, _ := json.Marshal(r.name) // a text is always encoded
	return string(encoded)
}

// environment returns the environment of the command.
func (r *runner) environment(hold *holdfast.Hold, inherited []string) []string {
	env := make([]string, 0, len(inherited)+4)
	for _, v := range inherited {
		switch name, _, _ := strings.Cut(v, "="); name {
		case storeVar, heldVar, "HOLDFAST_NAME", "HOLDFAST_TOKEN", "HOLDFAST_SLOT":
		default:
			env = append(env, v)
		}
	}
	return append(env,
		"HOLDFAST_NAME="+r.name,
		fmt.Sprintf("HOLDFAST_TOKEN=%d", hold.Token()),
		heldVar+"="+heldValue(r.name, hold.Token()),
		storeVar+"="+r.loc.environmentValue())
}

// outcome turns the end of the command into the end of the process.
func (r *runner) outcome(res job.Result, err, over, released error) error {
	var start *job.StartError
	switch {
	case res.Stopped != "" || over != nil:
		return r.fail(&failure{exitLost, r.lost(res.Stopped, over)})
	case errors.As(err, &start):
		return r.fail(notRun(r.argv[0], start.Err))
	case err != nil:
		return r.fail(fail(exitInternal, "%w", err))
	}
	if released != nil {
		r.say(eventJSON{Event: "unreleased", Error: message(released)},
			"the lock was held until the end, but its release is not confirmed: "+message(released))
	}
	r.interrupted = res.Interrupted
	status := res.Code()
	e := eventJSON{Event: "exit", Status: &status, By: "command"}
	if res.Status.Signaled() {
		e.Signal = int(res.Status.Signal())
	}
	r.event(e)
	return exitWith(status)
}

// lost returns why the command was stopped, or ended too late.
func (r *runner) lost(why job.Reason, over error) error {
	switch {
	case why == job.MaxDuration:
		return fmt.Errorf("lock %s: --max-hold %v is over", shown(r.name), r.maxHold)
	case over != nil:
		return over
	}
	return fmt.Errorf("lock %s: the store confirmed no renewal in time%s", shown(r.name), r.lastRenewalError())
}

// lastRenewalError returns the last error of a renewal, after a colon, or "".
func (r *runner) lastRenewalError() string {
	if err := r.renewalError.Load(); err != nil {
		return ": " + message(*err)
	}
	return ""
}

// fail returns the error of run, and with --json reports its status.
func (r *runner) fail(err error) error {
	if !r.console.json {
		return err
	}
	status := statusOf(err)
	r.event(eventJSON{Event: "exit", Status: &status, By: "holdfast", Reason: reasonOf(status), Error: message(err)})
	return exitWith(status)
}
