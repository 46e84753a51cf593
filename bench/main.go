// Command bench measures Holdfast beside its peers, and beside the least that the
// same server can be asked for through the same client. It starts the servers
// itself.
//
//	go run . -store redis -out results          # all scenarios on one store
//	go run . -quick                             # a taste of every store, in minutes
//	go run . -store command -out results        # what a command under a lock costs
//	go run . -scale -out results/scale          # what grows with names, holds, waiters and clients
//	go run . -scale -render results/scale       # the tables of scale.md from them
//	go run . -render results -docs ../docs      # the tables and plots of what is in results
//
// It is a module of its own, so that nobody who takes Holdfast takes the peers.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/holdfast-go/holdfast/internal/cli/bench"
)

// workerVerb is how bench starts its workers.
const workerVerb = "worker"

func main() {
	if len(os.Args) == 2 && os.Args[1] == workerVerb {
		signal.Ignore(syscall.SIGINT, syscall.SIGHUP) // the one who runs us decides
		if err := bench.Work(context.Background(), os.Stdin, os.Stdout, open); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// options are what the command line says.
type options struct {
	stores, scenarios, only []string
	runs                    int
	duration, limit         time.Duration
	quick                   bool
	out, profiles           string
}

func run(ctx context.Context) error {
	var o options
	stores := flag.String("store", "", "which `stores`, and \"command\" for what the command costs; all of them without it")
	scenarios := flag.String("scenario", "", "which `scenarios`; all of each store without it; with -scale which of goroutines, waiters, holds, clients and names")
	only := flag.String("only", "", "which `implementations`, by the beginning of their names")
	flag.IntVar(&o.runs, "runs", 5, "runs of each scenario")
	flag.DurationVar(&o.duration, "duration", 700*time.Millisecond, "of each run")
	flag.StringVar(&o.out, "out", "results", "`folder` for results")
	flag.StringVar(&o.profiles, "profiles", "", "`folder` for CPU profiles of the last runs")
	flag.BoolVar(&o.quick, "quick", false, "few scenarios, two short runs of each")
	scaled := flag.Bool("scale", false, "measure what grows with what, for docs/scale.md, and nothing else")
	flag.DurationVar(&o.limit, "limit", 10*time.Minute, "of each size, with -scale")
	from := flag.String("render", "", "measure nothing, but draw what is in this `folder`")
	docs := flag.String("docs", "../docs", "`folder` of performance.md and plots, for -render")
	flag.Parse()
	if flag.NArg() > 0 {
		return fmt.Errorf("there are no arguments, but %q", flag.Args())
	}
	if *from != "" {
		if *scaled {
			return renderScale(*from, *docs)
		}
		return render(*from, *docs)
	}
	o.stores, o.scenarios, o.only = list(*stores), list(*scenarios), list(*only)
	if *scaled {
		return o.measureScale(ctx)
	}
	if len(o.stores) == 0 {
		o.stores = storeNames()
		if !o.quick {
			o.stores = append(o.stores, commandScenario)
		}
	}
	if o.quick {
		o.runs, o.duration = 2, 300*time.Millisecond
		if len(o.scenarios) == 0 {
			o.scenarios = []string{"alone-1", "process-100", "clients-8-1ms"}
		}
	}
	if _, err := bench.Choose(o.scenarios); err != nil {
		return err
	}
	for _, name := range o.stores {
		if name == commandScenario {
			if err := o.measureCommands(ctx); err != nil {
				return err
			}
			continue
		}
		i := slices.IndexFunc(stages, func(s stage) bool { return s.name == name })
		if i < 0 {
			return fmt.Errorf("there is no store %q, but %s, and %s", name, strings.Join(storeNames(), ", "), commandScenario)
		}
		if err := o.measure(ctx, stages[i]); err != nil {
			return err
		}
	}
	return nil
}

func list(s string) []string {
	return strings.FieldsFunc(s, func(r rune) bool { return r == ',' })
}

// stage is a store with those who compete on it.
type stage struct {
	name      string
	scenarios []string
	// set starts servers, which end with h, and says who competes.
	set func(h *host) (targets []bench.Target, versions map[string]string)
}

var stages = []stage{
	{"redis", []string{"alone-1", "alone-1-contended", "alone-1-10000", "alone-64", "alone-64-10000", "process-2", "process-16", "process-100", "process-1000", "process-2-1ms", "process-16-1ms",
		"process-100-1ms", "process-1000-1ms", "crowds", "clients-2", "clients-8", "clients-64", "clients-2-1ms", "clients-8-1ms", "clients-64-1ms",
		"held-10000", "crash"}, redisStage},
	{"redlock3", []string{"alone-1", "clients-8-1ms", "crash"}, redlockStage(3)},
	{"redlock5", []string{"alone-1", "clients-8-1ms"}, redlockStage(5)},
	{"etcd", []string{"alone-1", "alone-64", "process-16", "process-100", "process-16-1ms", "process-100-1ms", "clients-2", "clients-8", "clients-16",
		"clients-64", "clients-8-1ms", "clients-64-1ms", "held-10000", "crash"}, etcdStage},
	{"zookeeper", []string{"alone-1", "alone-64", "process-16", "process-100", "process-16-1ms", "process-100-1ms", "clients-2", "clients-8", "clients-64",
		"clients-8-1ms", "clients-64-1ms", "held-1000", "crash"}, zkStage},
	{"postgresql", append([]string{"clients-4"}, sqlScenarios...), pgStage},
	{"mariadb", sqlScenarios, mysqlStage},
}

// sqlScenarios are those of the databases.
var sqlScenarios = []string{"alone-1", "alone-64", "process-16", "process-100", "process-16-1ms", "process-100-1ms", "clients-2", "clients-8",
	"clients-8-1ms", "clients-64-1ms", "held-1000", "crash"}

func storeNames() (names []string) {
	for _, s := range stages {
		names = append(names, s.name)
	}
	return names
}

// measure runs a store's scenarios and writes its results, a file for each
// scenario, so that one can be measured again.
func (o *options) measure(ctx context.Context, s stage) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	names := s.scenarios
	if len(o.scenarios) > 0 {
		names = slices.DeleteFunc(slices.Clone(names), func(n string) bool { return !slices.Contains(o.scenarios, n) })
	}
	scenarios, err := bench.Choose(names)
	if err != nil || len(scenarios) == 0 {
		return err // not every store has every scenario
	}
	for _, dir := range []string{o.out, o.profiles} {
		if dir != "" {
			if err := os.MkdirAll(dir, 0o777); err != nil {
				return err
			}
		}
	}
	return withHost(func(h *host) error {
		targets, versions := s.set(h)
		targets = slices.DeleteFunc(targets, func(t bench.Target) bool {
			return len(o.only) > 0 && !slices.ContainsFunc(o.only, func(p string) bool {
				return len(p) <= len(t.Name) && strings.EqualFold(t.Name[:len(p)], p)
			})
		})
		if len(targets) == 0 {
			return fmt.Errorf("nobody who competes on %s has a name that begins with %s", s.name, strings.Join(o.only, " or "))
		}
		for i := range targets {
			targets[i].Store, targets[i].Prefix = s.name, fmt.Sprintf("b%d/", i)
		}
		for _, sc := range scenarios {
			r, err := bench.Run(ctx, bench.Config{
				Scenarios: []bench.Scenario{sc}, Targets: targets, Runs: o.runs, Duration: o.duration,
				Command: []string{self, workerVerb}, Profiles: o.profiles,
			})
			if r != nil {
				r.Versions = versions
				err = errors.Join(err, save(filepath.Join(o.out, s.name+"-"+sc.Name+".json"), r))
				printReport(r)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

func save(file string, r *bench.Report) error {
	b, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(b, '\n'), 0o666)
}

func printReport(r *bench.Report) {
	for i, row := range r.Rows {
		if i == 0 {
			fmt.Printf("\n== %s, %s: %s (%.0f s)\n", row.Store, row.Scenario, row.Title, r.Seconds)
		}
		if row.Failed != "" {
			fmt.Printf("%s: FAILED: %s\n", row.Implementation, row.Failed)
			continue
		}
		titles, lines := bench.Cells(row.Scenario, r.Rows[i:i+1])
		fmt.Printf("%s:", row.Implementation)
		for j := range titles[1:] {
			fmt.Printf("  %s %s", titles[j+1], lines[0][j+1])
		}
		fmt.Println()
	}
}
