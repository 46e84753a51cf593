//go:build unix

package cli

import (
	"context"
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
	"github.com/holdfast-go/holdfast/anylock"
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
	quiet             bool

	place   location
	client  *holdfast.Client
	signals <-chan os.Signal
	asked   time.Time
	trouble atomic.Pointer[error] // what failed last in the background
}

func (a *app) run() *cobra.Command {
	r := &runner{app: a}
	cmd := &cobra.Command{
		Use:   "run [flags] NAME -- COMMAND [ARGUMENT...]",
		Short: "Run a command while holding a lock",
		Long: `Run waits for the lock NAME, first come first served, runs COMMAND while holding
it, and releases it when COMMAND has ended. It exits with COMMAND's exit status,
or 128 plus the number of the signal that ended it.

Statuses of its own, of which standard error tells the reason:

   64  the command line, a name, an option or the store's URL is wrong
   69  the store cannot be reached, or refuses
   74  the lock was lost or in doubt, or --max-hold was over: COMMAND was stopped
   75  not acquired: --no-wait found it held, or --wait was over
   78  NAME is in use as another kind of lock
  126  COMMAND cannot be run
  127  COMMAND was not found

A command may end with such a status too. With --json, the last line on standard
error is an object whose "status" is the exit status, and whose "by" says whose:
"command" or "holdfast".

The command. Standard input, output and error are its own; run writes to standard
error only. In its environment are HOLDFAST_NAME, the lock's name; HOLDFAST_TOKEN,
the fencing token, greater than that of every earlier holder (with --shared and
--slots it only orders); and HOLDFAST_STORE, the store's URL without its
password. It runs in a process group of its own, to which INT, TERM, HUP, QUIT,
USR1, USR2 and WINCH are passed on. On a terminal that group is the foreground
while it runs, so keys work as they would without holdfast; in a pipeline it
becomes that as soon as it reads from the terminal. Ctrl-Z stops holdfast too,
which then renews nothing: if it is not continued, the command is stopped as
described next. Background processes that COMMAND leaves behind run on without
the lock, unless holdfast stopped COMMAND.

When the lock is in doubt. The lock is renewed every third of the TTL. If the
store has not confirmed a renewal until --grace before the lease ends (a quarter
of the TTL, unless given), the process group is sent TERM, and, a fifth of that
time before the end (a second at most), KILL: when the next holder can start,
nothing of COMMAND is left. A lock that is already gone, such as one that an
operator broke, is followed by KILL at once.

When holdfast itself dies. A second process of it, the guard, is in the group of
COMMAND. If holdfast is killed with SIGKILL, the guard kills the group at once;
if it is stopped, or starved, the guard sends TERM and KILL in time. On Linux and
FreeBSD the kernel kills COMMAND also if the guard was killed together with
holdfast; elsewhere, and for what COMMAND started, nobody does in that case. The
lock is free again after its TTL. What has left the process group (daemons) or
runs as another user cannot be stopped: say "sudo holdfast run", not "holdfast run
NAME -- sudo".

Kinds of locks. A lock is a mutex unless --shared or --exclusive make it a
read/write lock, or --slots a semaphore. All who use a name have to agree on the
kind.`,
		Example: `  # A cron job that must not overlap with itself, on whatever machine it runs
  holdfast run --no-wait nightly -- /usr/local/bin/backup --all

  # Wait for a minute at most, and say why
  holdfast run --wait 1m --note "release 1.4" deploy -- ./deploy.sh

  # Four encoders at a time, many readers beside one writer
  holdfast run --slots 4 encode -- ffmpeg -i in.mov out.mp4
  holdfast run --shared catalogue -- ./report
  holdfast run --exclusive catalogue -- ./reindex

  # Refuse a late write with the fencing token
  holdfast run import -- sh -c 'psql -v token="$HOLDFAST_TOKEN" -f import.sql'`,
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
	f.DurationVar(&r.ttl, "ttl", holdfast.DefaultTTL, "how long a holder that died keeps the lock from others")
	f.DurationVar(&r.grace, "grace", 0, "stop the command so long before the lease ends without a renewal (default: a quarter of the TTL)")
	f.DurationVar(&r.maxHold, "max-hold", 0, "stop the command before it has held the lock for `DURATION`")
	f.BoolVar(&r.shared, "shared", false, "hold NAME as a read/write lock, beside other readers")
	f.BoolVar(&r.exclusive, "exclusive", false, "hold NAME as a read/write lock, alone")
	f.IntVar(&r.slots, "slots", 0, "hold one of `N` slots of NAME, a semaphore")
	f.StringVar(&r.owner, "owner", "", "hold together with all who name this owner: it names a job, not a service")
	f.StringVar(&r.note, "note", "", "text for those who look who holds the lock (default: the name of the command's program)")
	f.BoolVarP(&r.quiet, "quiet", "q", false, "do not say that it waits")
	cmd.MarkFlagsMutuallyExclusive("shared", "exclusive", "slots")
	cmd.MarkFlagsMutuallyExclusive("wait", "no-wait")
	cmd.MarkFlagsMutuallyExclusive("slots", "owner")
	return cmd
}

// arguments checks what can be checked before anything is opened.
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
	}
	r.name, r.argv = args[0], args[1:]
	flags := cmd.Flags()
	switch {
	case flags.Changed("wait") && r.wait < 0:
		return usage("--wait %v is negative", r.wait)
	case r.ttl <= 0:
		return usage("--ttl %v is not positive", r.ttl)
	case flags.Changed("grace") && (r.grace <= 0 || r.grace > r.ttl/2):
		return usage("--grace %v is not between 0 and half of the TTL, %v", r.grace, r.ttl/2)
	case flags.Changed("max-hold") && r.maxHold <= 0:
		return usage("--max-hold %v is not positive", r.maxHold)
	case flags.Changed("slots") && (r.slots < 1 || r.slots > math.MaxInt32):
		return usage("--slots %d is not a number of slots", r.slots)
	}
	r.noWait = r.noWait || r.wait == 0
	if r.grace == 0 {
		r.grace = r.ttl / 4
	}
	if !flags.Changed("note") {
		r.note = programName(r.argv[0])
	}
	// Whoever has to wait for an hour wants to know before that the command is
	// misspelt.
	path, err := exec.LookPath(r.argv[0])
	if err != nil && !errors.Is(err, exec.ErrDot) {
		return notRun(r.argv[0], err)
	}
	r.path = path
	return nil
}

// programName is the default note: no arguments, since they may hold secrets.
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
	// Standard error may be a pipe that nobody reads any more: from here on
	// that is no reason to die.
	signals, stop := job.Signals()
	defer stop()
	r.signals = signals
	r.asked = time.Now()

	hold, err := r.acquire()
	if r.client != nil {
		defer r.client.Close()
	}
	if err != nil {
		var by *endedBy
		r.interrupted = errors.As(err, &by) && by.signal == syscall.SIGINT
		return r.fail(err)
	}
	return r.command(hold)
}

// acquire opens the store and takes the lock. Signals that end programs end it.
func (r *runner) acquire() (*holdfast.Hold, error) {
	ctx, stop := endOn(context.Background(), r.signals)
	defer stop()
	show := newWaitLine(r)
	var err error
	r.client, r.place, err = r.open(ctx, holdfast.WithTTL(r.ttl), holdfast.WithOwner(r.owner), holdfast.WithNote(r.note),
		holdfast.WithObserver(&holdfast.Observer{Waiting: show.begin, Trouble: func(err error) { r.trouble.Store(&err) }}))
	if err != nil {
		return nil, cause(ctx, err)
	}
	if r.wait > 0 {
		limit := &waitOver{r.wait}
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, r.wait, limit)
		defer cancel()
	}
	hold, err := r.take()(ctx)
	show.end()
	if err != nil {
		return nil, r.explain(cause(ctx, err))
	}
	r.event(eventJSON{Event: "acquired", Token: hold.Token(), Waited: new(seconds(time.Since(r.asked)))})
	return hold, nil
}

// waitOver is the cause of a wait that --wait ended.
type waitOver struct{ limit time.Duration }

func (w *waitOver) Error() string { return fmt.Sprintf("--wait %v is over", w.limit) }

// take is the call that the flags ask for.
func (r *runner) take() func(context.Context) (*holdfast.Hold, error) {
	pick := func(lock, try func(context.Context) (*holdfast.Hold, error)) func(context.Context) (*holdfast.Hold, error) {
		if r.noWait {
			return try
		}
		return lock
	}
	switch {
	case r.shared:
		m := r.client.RWMutex(r.name)
		return pick(m.RLock, m.TryRLock)
	case r.exclusive:
		m := r.client.RWMutex(r.name)
		return pick(m.Lock, m.TryLock)
	case r.slots > 0:
		s := r.client.Semaphore(r.name, r.slots)
		return pick(
			func(ctx context.Context) (*holdfast.Hold, error) { return s.Acquire(ctx, 1) },
			func(ctx context.Context) (*holdfast.Hold, error) { return s.TryAcquire(ctx, 1) })
	}
	m := r.client.Mutex(r.name)
	return pick(m.Lock, m.TryLock)
}

// explain says which flag would help.
func (r *runner) explain(err error) error {
	if !errors.Is(err, holdfast.ErrKindMismatch) {
		return err
	}
	return fmt.Errorf("%w (a read/write lock is asked for by --shared or --exclusive, a semaphore by --slots, a mutex by neither)", err)
}

// command runs the command under the hold, and releases it.
func (r *runner) command(hold *holdfast.Hold) error {
	j := &job.Job{
		Path: r.path, Args: r.argv, Env: r.environment(hold, os.Environ()),
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		GuardArgs: []string{guardVerb},
		Deadline:  hold.Deadline, Over: hold.Context().Done(),
		Grace: r.grace, Longest: r.maxHold,
		Signals: r.signals,
		Notice:  r.notice,
	}
	res, err := j.Run()
	over := hold.Err() // judged at the instant at which the command had ended
	released := hold.Unlock()
	if over == nil && errors.Is(released, holdfast.ErrLost) {
		over = released
	}
	return r.outcome(res, err, over, released)
}

// environment is that of the command.
func (r *runner) environment(hold *holdfast.Hold, inherited []string) []string {
	env := make([]string, 0, len(inherited)+3)
	for _, v := range inherited {
		switch name, _, _ := strings.Cut(v, "="); name {
		case storeVar, "HOLDFAST_NAME", "HOLDFAST_TOKEN":
		default:
			env = append(env, v)
		}
	}
	return append(env,
		"HOLDFAST_NAME="+r.name,
		fmt.Sprintf("HOLDFAST_TOKEN=%d", hold.Token()),
		// Without its password, a nested holdfast is refused. Without the
		// variable, it would lock in another store, and say nothing.
		storeVar+"="+anylock.Redact(r.place.url))
}

// outcome turns the end of the command into that of the process.
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
	return ended(status)
}

// lost says why the command was stopped, or ended too late.
func (r *runner) lost(why job.Reason, over error) error {
	switch {
	case why == job.Longest:
		return fmt.Errorf("lock %s: --max-hold %v is over", shown(r.name), r.maxHold)
	case over != nil:
		return over
	}
	return fmt.Errorf("lock %s: the store confirmed no renewal in time%s", shown(r.name), r.lastTrouble())
}

// lastTrouble is what the store said last, if it has failed in the background.
func (r *runner) lastTrouble() string {
	if err := r.trouble.Load(); err != nil {
		return ": " + message(*err)
	}
	return ""
}

// fail ends run with a status of its own, and reports it where JSON is wanted.
func (r *runner) fail(err error) error {
	if !r.json {
		return err
	}
	status := statusOf(err)
	r.event(eventJSON{Event: "exit", Status: &status, By: "holdfast", Reason: reasonOf(status), Error: message(err)})
	return ended(status)
}
