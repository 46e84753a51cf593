//go:build unix

package cli

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/holdfast-go/holdfast/internal/cli/bench"
)

// workerVerb is the verb by which bench starts its workers.
const workerVerb = "bench-worker"

// benchWorker returns the verb of one worker process.
func (a *app) benchWorker() *cobra.Command {
	return &cobra.Command{
		Use:    workerVerb,
		Short:  "A worker of a bench; started by bench itself",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			// The terminal interrupts all of us; the run decides when to end.
			signal.Ignore(syscall.SIGINT, syscall.SIGHUP)
			return bench.Work(context.Background(), os.Stdin, os.Stdout, bench.OpenHoldfast)
		},
	}
}

// usualScenarios are the scenarios that bench runs unless --scenario is given.
var usualScenarios = []string{"alone-1", "alone-64", "process-16-1ms", "process-1000", "clients-2", "clients-8-1ms", "held-1000", "crash"}

// benchFlags are the flags of bench.
type benchFlags struct {
	duration  time.Duration
	runs      int
	scenarios []string
}

func (a *app) bench() *cobra.Command {
	f := benchFlags{}
	var all strings.Builder
	for _, s := range bench.Scenarios() {
		fmt.Fprintf(&all, "  %-17s %s\n", s.Name, s.Title)
	}
	cmd := &cobra.Command{
		Use:   "bench [flags]",
		Short: "Measure locks on a store",
		Long: `Bench takes and releases locks on the store, in processes of its own, and says how
many a second, how long each took, how long from an Unlock to the next holder, what
was asked of the store, how fair it was, and what it cost. That no two held at once
is checked in every run. A figure is the median of the runs, with the least and the
greatest where they differ. The scenarios:

` + all.String() + `
It uses names of its own, which begin with holdfast-bench/, and leaves none behind but
token counters. The store and its other users meet load: on a server that others
need, choose few scenarios and short runs. Each scenario takes about a second and
--runs times --duration; crash takes some TTLs, and held-... half a minute. An
interrupt ends it.

Scenarios of several processes are passed over on a memory: store, and those whose
TTL the store does not allow.

Exit status: 0 when it was measured, 1 when two held a lock at once, others as for
every command. With --json the report is one object.`,
		Example: `  holdfast bench
  holdfast bench --store redis://localhost --scenario alone-1,clients-8-1ms
  holdfast bench --store etcd://localhost --duration 5s --runs 5 --json`,
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usage("bench takes no arguments")
			}
			return a.runBench(f)
		},
	}
	flags := cmd.Flags()
	flags.DurationVar(&f.duration, "duration", time.Second, "`DURATION` of each run")
	flags.IntVar(&f.runs, "runs", 3, "`NUMBER` of runs of each scenario, besides one for warming up")
	flags.StringSliceVar(&f.scenarios, "scenario", usualScenarios, "`NAMES` of scenarios")
	if err := cmd.RegisterFlagCompletionFunc("scenario", completeScenarios); err != nil {
		panic(err) // the flag is ours
	}
	return cmd
}

// completeScenarios offers the scenarios that are not yet in the list.
func completeScenarios(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
	before, last := "", typed
	if i := strings.LastIndexByte(typed, ','); i >= 0 {
		before, last = typed[:i+1], typed[i+1:]
	}
	var names []string
	for _, s := range bench.Scenarios() {
		if strings.HasPrefix(s.Name, last) && !strings.Contains(","+before, ","+s.Name+",") {
			names = append(names, before+s.Name+"\t"+s.Title)
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace | cobra.ShellCompDirectiveKeepOrder
}

func (a *app) runBench(f benchFlags) error {
	scenarios, err := bench.Choose(f.scenarios)
	switch {
	case err != nil:
		return usage("%s", strings.TrimPrefix(err.Error(), "bench: "))
	case len(scenarios) == 0:
		return usage("there is nothing to run: --scenario is empty")
	case f.runs < 1 || f.duration < time.Millisecond:
		return usage("%d runs of %v: at least 1 of 1 ms", f.runs, f.duration)
	}
	ctx, stop := untilSignal(context.Background())
	defer stop()
	client, l, err := a.open(ctx) // reports a problem with the store at once
	if err != nil {
		return err
	}
	traits := client.Traits()
	if err := client.Close(); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return fail(exitInternal, "the workers: %w", err)
	}
	memory := strings.HasPrefix(strings.ToLower(l.url), "memory:")
	cfg := bench.Config{
		Scenarios: scenarios, Runs: f.runs, Duration: f.duration, Command: []string{self, workerVerb},
		Targets: []bench.Target{{
			Spec: bench.Spec{Name: "holdfast", Kind: bench.Holdfast, Server: l.url, Prefix: fmt.Sprintf("holdfast-bench/%x/", rand.Uint64())},
			Role: bench.RoleHoldfast, Store: traits.Scheme,
		}},
		Skip: func(s bench.Scenario) string {
			switch {
			case memory && s.Processes > 1:
				return "processes do not share memory"
			case s.TTL > 0 && s.TTL < traits.MinTTL:
				return fmt.Sprintf("its TTL of %v is below this store's minimum of %v", s.TTL, traits.MinTTL)
			case s.TTL > 0 && traits.MaxTTL > 0 && s.TTL > traits.MaxTTL:
				return fmt.Sprintf("its TTL of %v is above this store's maximum of %v", s.TTL, traits.MaxTTL)
			}
			return ""
		},
	}
	display := &progress{}
	if file, ok := a.console.stderr().(*os.File); ok && !a.console.json && term.IsTerminal(int(file.Fd())) {
		display.screen = file
		cfg.Progress = func(s bench.Step) { display.write(benchStep(s)) }
	}
	if !a.console.json {
		fmt.Fprintf(a.console.stderr(), "holdfast: %s, %d runs of %v of each of %d scenarios\n", l.shown(), f.runs, f.duration, len(scenarios))
	}
	report, err := bench.Run(ctx, cfg)
	display.clear()
	if err != nil && ctx.Err() != nil {
		return cause(ctx, err)
	}
	if errors.Is(err, bench.ErrOverlap) {
		err = fail(exitNo, "%w", err)
	} else if err != nil {
		err = fail(exitUnavailable, "%w", err)
	}
	if report == nil {
		return err
	}
	if a.console.json {
		return errors.Join(err, a.console.outJSON(report))
	}
	return errors.Join(err, benchText(a.console.stdout(), report))
}
