//go:build unix

package cli

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/holdfast-go/holdfast/anylock"
	"github.com/holdfast-go/holdfast/internal/safety/torture"
)

// clientVerb is the verb by which torture starts its clients.
const clientVerb = "torture-client"

// tortureClient returns the verb of one client of a torture run.
func (a *app) tortureClient() *cobra.Command {
	return &cobra.Command{
		Use:    clientVerb,
		Short:  "A client of a torture run; started by torture itself",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			// The terminal interrupts all of us; the run decides when to end.
			signal.Ignore(syscall.SIGINT, syscall.SIGHUP)
			return torture.Client(context.Background(), os.Stdin, os.Stdout, anylock.OpenDriver)
		},
	}
}

// tortureFlags are the flags of torture.
type tortureFlags struct {
	duration, ttl, slack         time.Duration
	processes, goroutines, names int
	seed                         uint64
	faults                       []string
	history                      string
}

func (a *app) torture() *cobra.Command {
	var f tortureFlags
	cmd := &cobra.Command{
		Use:   "torture [flags]",
		Short: "Test a store with many clients, faults and a checker",
		Long: `Torture starts client processes that take locks from the store in every way, and
disturbs them: it stops them past their lease, kills and restarts them, and loses,
holds, doubles and refuses their requests and the store's pushes. Every call is
written down before and after, and the history is checked:

  C1  holds of one name never exceed its limit together
  C2  a resource that refuses old tokens loses no write and refuses no holder
  C3  tokens are distinct and grow in the order of grants
  C4  who had a place before another asked is granted first
  C5  the history of each mutex is linearizable (slices of it, by Porcupine)
  C6  a loss is told once and in time, a release is not a loss
  C7  after the last fault every lock can be taken, and every wait ends
  C8  the store keeps nothing of the run but its token counters
  C9  every error is one that the call may give
  C10 nobody is let in while the function of a hold that its client ended still runs

It uses names of its own, which begin with holdfast-torture/, and disturbs nothing
but its own processes: the store and its other users meet load, and no faults. The
seed decides the faults, though not how the goroutines interleave. A fault happens
every 1.25 TTLs or so: a short TTL brings more of them. The run ends by itself, some
TTLs after --duration; an interrupt ends it early, with a report.

A memory: store belongs to one process. All clients are then in this one, and only
their requests are disturbed.

Exit status: 0 when no violation was found, 1 when one was, others as for every
command. With --json the report is one object; --history keeps all events, one JSON
object a line.`,
		Example: `  holdfast torture
  holdfast torture --store redis://localhost --duration 10m --seed 7
  holdfast torture --store etcd://localhost --ttl 5s --faults pause,kill --json`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usage("torture takes no arguments")
			}
			if !cmd.Flags().Changed("seed") {
				f.seed = rand.Uint64N(1 << 32)
			}
			if !cmd.Flags().Changed("faults") {
				f.faults = nil
			} else if len(f.faults) == 1 && f.faults[0] == "none" {
				f.faults = []string{}
			}
			if cmd.Flags().Changed("ttl") && f.ttl <= 0 {
				return usage("--ttl %v is not positive", f.ttl)
			}
			return a.runTorture(f)
		},
	}
	flags := cmd.Flags()
	flags.DurationVar(&f.duration, "duration", time.Minute, "`DURATION` until faults are healed")
	flags.DurationVar(&f.ttl, "ttl", 0, "`DURATION` of the leases (default: "+torture.DefaultTTL.String()+", or the nearest that the store allows)")
	flags.IntVar(&f.processes, "processes", 4, "`NUMBER` of client processes")
	flags.IntVar(&f.goroutines, "goroutines", 8, "`NUMBER` of goroutines in each")
	flags.IntVar(&f.names, "names", 5, "`NUMBER` of locks: mutexes, read/write locks and semaphores")
	flags.Uint64Var(&f.seed, "seed", 0, "`NUMBER` that decides the faults (default: a fresh one)")
	flags.StringSliceVar(&f.faults, "faults", torture.Kinds(), "`KINDS` of faults, or none")
	flags.DurationVar(&f.slack, "slack", time.Second, "`DURATION` added to promised times, for a busy machine")
	flags.StringVar(&f.history, "history", "", "`FILE` that all events are written to")
	return cmd
}

func (a *app) runTorture(f tortureFlags) (err error) {
	l, err := a.locate()
	if err != nil {
		return err
	}
	a.warnTransport(l)
	cfg := torture.Config{
		Store: l.url, Duration: f.duration, Processes: f.processes, Goroutines: f.goroutines, Names: f.names,
		TTL: f.ttl, Seed: f.seed, Slack: f.slack, Faults: f.faults, Open: anylock.OpenDriver,
	}
	if err := f.configureClients(a, &cfg); err != nil {
		return err
	}
	cfg.Repeat = f.command(l, cfg.Faults)
	if f.history != "" {
		file, err := os.OpenFile(f.history, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
		if err != nil {
			return usage("the history: %w", err)
		}
		defer file.Close()
		w := bufio.NewWriter(file)
		defer func() {
			if e := w.Flush(); e != nil && err == nil {
				err = fail(exitInternal, "the history: %w", e)
			}
		}()
		cfg.History = w
	}
	display := &progress{}
	if file, ok := a.console.stderr().(*os.File); ok && !a.console.json && term.IsTerminal(int(file.Fd())) {
		display.screen = file
		cfg.Progress = display.show
	}
	if !a.console.json {
		cfg.Begun = func(c torture.Config) {
			if len(c.Command) == 0 {
				fmt.Fprintln(a.console.stderr(), "holdfast: processes do not share memory: all clients are in this one, and only their requests are disturbed")
			}
			fmt.Fprintf(a.console.stderr(), "holdfast: %s, seed %d, %d processes × %d goroutines × %d locks, TTL %v, faults: %s, for %v\n",
				l.shown(), f.seed, c.Processes, c.Goroutines, c.Names, c.TTL, faultNames(c.Faults), f.duration)
		}
	}
	ctx, stop := untilSignal(context.Background())
	defer stop()
	report, err := torture.Run(ctx, cfg)
	display.clear()
	if err != nil {
		return cause(ctx, err)
	}
	if a.console.json {
		err = a.console.outJSON(report)
	} else {
		_, err = fmt.Fprint(a.console.stdout(), reportText(report))
	}
	if err == nil && !report.OK() {
		return exitWith(exitNo)
	}
	return err
}

// configureClients sets where clients run, and the faults that can befall them
// there.
func (f tortureFlags) configureClients(a *app, cfg *torture.Config) error {
	if strings.HasPrefix(strings.ToLower(cfg.Store), "memory:") {
		if cfg.Store == "memory:" { // the clients have to meet
			cfg.Store = fmt.Sprintf("memory:torture-%d", f.seed)
		}
		if f.faults == nil {
			cfg.Faults = []string{torture.Requests}
		} else if slices.Contains(f.faults, torture.Pause) || slices.Contains(f.faults, torture.Kill) {
			return usage("processes do not share memory: all clients of memory: are in this one, and only their requests can be disturbed")
		}
		return nil
	}
	if f.faults == nil {
		cfg.Faults = torture.Kinds()
	}
	self, err := os.Executable()
	if err != nil {
		return fail(exitInternal, "the clients: %w", err)
	}
	cfg.Command = []string{self, clientVerb}
	return nil
}

// command returns the command line that repeats the run. It names a store only if
// the command line did, since a URL may have a password.
func (f tortureFlags) command(l location, faults []string) string {
	words := []string{"holdfast", "torture"}
	if l.argv {
		words = append(words, "--store", l.shown())
	}
	words = append(words,
		"--duration", f.duration.String(), "--processes", fmt.Sprint(f.processes),
		"--goroutines", fmt.Sprint(f.goroutines), "--names", fmt.Sprint(f.names), "--seed", fmt.Sprint(f.seed),
		"--faults", faultNames(faults), "--slack", f.slack.String())
	if f.ttl > 0 {
		words = append(words, "--ttl", f.ttl.String())
	}
	return strings.Join(words, " ")
}

func faultNames(faults []string) string {
	if len(faults) == 0 {
		return "none"
	}
	return strings.Join(faults, ",")
}
