//go:build unix

// Package cli is the command holdfast: one file for each verb, and beside them
// the parts that the verbs share. Results go to standard output, messages to standard
// error; with --json both are JSON, one object a line.
package cli

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-go/holdfast/anylock"
)

// app has the state that the verbs of one invocation share.
type app struct {
	root *cobra.Command
	path string // of the verb, for hints

	store, storeFile string
	console          console

	// interrupted is set by a verb whose end was caused by SIGINT: the
	// process then ends by that signal, so that a script that runs it ends too.
	interrupted bool

	out *output

	// closing counts the calls that release something at a store that may be
	// silent. The end of the process does not wait for them.
	closing sync.WaitGroup
}

// Main runs the command with the arguments and files of the process, and
// returns its exit status.
func Main() int {
	a := newApp()
	status := a.execute(os.Args[1:])
	if a.interrupted {
		interruptSelf()
	}
	return status
}

// New returns the command with all of its verbs, for documentation.
func New() *cobra.Command { return newApp().root }

func (a *app) execute(args []string) int {
	a.root.SetArgs(args)
	for _, arg := range args { // errors of the command line come before flags are known
		if arg == "--" {
			break
		}
		a.console.json = a.console.json || arg == "--json"
	}
	a.out = &output{to: a.root.OutOrStdout()}
	a.root.SetOut(a.out)
	a.initCompletion(args)
	cmd, err := a.root.ExecuteC()
	if a.out.err != nil {
		err = fail(exitInternal, "standard output: %w", a.out.err)
	}
	if err == nil {
		return exitOK
	}
	a.path = cmd.CommandPath()
	a.report(err)
	return statusOf(err)
}

func newApp() *app {
	a := &app{path: "holdfast"}
	showVersion := false
	a.root = &cobra.Command{
		Use:   "holdfast",
		Short: "Locks that processes and machines share",
		Long: `Holdfast holds named locks in a store that processes and machines share.

  holdfast run NAME -- COMMAND   runs a command while holding a lock

A holder renews its lock while it works. A holder that dies, or that loses touch
with the store, loses the lock after its TTL, and the next in line gets it.

The store is given by a URL:

  ` + strings.Join(anylock.Forms(), "\n  ") + `

with --store, in a file with --store-file, or in the environment variable
HOLDFAST_STORE, of which the first counts; one that is set and empty is refused.
Without one it is a SQLite file in the user's state folder
($XDG_STATE_HOME/holdfast/locks.db, by default ~/.local/state/holdfast/locks.db;
on macOS ~/Library/Application Support/holdfast/locks.db), which the user's
processes on this machine share; standard error says so.

A command line can be read by every user of the machine. A URL with a password
belongs into a file that only you can read, given as --store-file FILE,
--store @FILE or HOLDFAST_STORE=@FILE, or into HOLDFAST_STORE itself. Relative
paths in a URL begin at the folder of the file that has it, or else at the working
folder.

Exit status:
    0   done
    1   the answer is no: doctor found a problem, torture a violation, bench an overlap,
        break did not break
   64   the command line, a name, an option or the store's URL is wrong
   69   the store cannot be reached, or refuses
   70   something that should not happen, such as output that cannot be written
   74   the lock was lost, or in doubt, and the command was stopped (run)
   75   the lock was not acquired: others hold it (run)
   78   the name is in use as another kind of lock (run)
  126   the command cannot be run (run)
  127   the command was not found (run)
  128+n ended by signal n
and for run, when the command has run: the command's own.`,
		Example: `  holdfast run nightly -- /usr/local/bin/backup --all
  holdfast ls
  holdfast --store redis://locks.example.org show nightly
  HOLDFAST_STORE=@/etc/holdfast/store holdfast doctor`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case showVersion:
				return a.writeVersion()
			case len(args) == 0:
				return cmd.Help()
			}
			err := usage("there is no command %q", args[0])
			if s := cmd.SuggestionsFor(args[0]); len(s) > 0 {
				err = usage("there is no command %q; did you mean %s?", args[0], strings.Join(s, " or "))
			}
			return err
		},
	}
	a.console.root = a.root
	a.root.SuggestionsMinimumDistance = 2
	a.root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return flagError(err) })
	flags := a.root.PersistentFlags()
	flags.StringVar(&a.store, "store", "", "`URL` of the store, or @FILE that has it in its first line")
	flags.StringVar(&a.storeFile, "store-file", "", "`FILE` whose first line is the URL of the store")
	flags.BoolVar(&a.console.json, "json", false, "write JSON, one object a line, errors too")
	a.root.AddCommand(a.run(), a.serve(), a.ls(), a.show(), a.watch(), a.breakTicket(), a.doctor(), a.torture(), a.bench(), a.schema(), a.version(),
		a.tortureClient(), a.benchWorker())
	a.root.Flags().BoolVar(&showVersion, "version", false, "print the version of holdfast, as the command version does")
	return a
}

// untilSignal returns a context that ends when a signal asks this process to
// end; its cause is a *signalError. The returned function frees its resources.
func untilSignal(ctx context.Context) (context.Context, func()) {
	c := make(chan os.Signal, 1)
	for _, s := range []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		if !signal.Ignored(s) { // as by nohup
			signal.Notify(c, s)
		}
	}
	ctx, stop := cancelOn(ctx, c)
	return ctx, func() {
		signal.Stop(c)
		stop()
	}
}

// cancelOn returns a context that the first signal from c that ends programs
// cancels. The returned function waits until nothing reads from c any more.
func cancelOn(ctx context.Context, c <-chan os.Signal) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-ctx.Done():
				return
			case s := <-c:
				switch s {
				case syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT:
					cancel(&signalError{s.(syscall.Signal)})
				}
			}
		}
	}()
	return ctx, func() {
		cancel(nil)
		<-done
	}
}

// interruptSelf ends this process by SIGINT, because a shell goes on with a
// script whose command merely exits. It returns if the signal is ignored.
func interruptSelf() {
	if os.Getpid() == 1 {
		return // the first process of a container does not die by its own signal
	}
	signal.Reset(syscall.SIGINT)
	if syscall.Kill(os.Getpid(), syscall.SIGINT) == nil && !signal.Ignored(syscall.SIGINT) {
		time.Sleep(time.Second) // the signal may arrive a little after Kill has returned
	}
}

// exactlyOne returns the only argument; errors call it what.
func exactlyOne(what string, args []string) (string, error) {
	switch {
	case len(args) == 0:
		return "", usage("%s is missing", what)
	case len(args) > 1:
		return "", usage("one %s is wanted, not %d arguments", what, len(args))
	case args[0] == "":
		return "", usage("%s is empty", what)
	}
	return args[0], nil
}

// atMostOne returns the only argument, or "" without any.
func atMostOne(what string, args []string) (string, error) {
	if len(args) == 0 {
		return "", nil
	}
	if len(args) > 1 {
		return "", usage("at most one %s is wanted, not %d arguments", what, len(args))
	}
	return args[0], nil
}

// cause returns the error of an operation: if a signal or the verb itself ended
// its context, that cause, else err.
func cause(ctx context.Context, err error) error {
	var by *signalError
	var f *failure
	switch why := context.Cause(ctx); {
	case err == nil:
	case errors.As(why, &by):
		return by
	case errors.As(why, &f):
		return f
	}
	return err
}
