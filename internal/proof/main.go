// Command proof checks the specifications of folder proof with TLC: that each
// holds in its bounded worlds, that each planted mistake is refuted by the
// property named for it, that what the properties are about is reachable, and
// that no action stays untaken. It needs Java; scripts/proof-tools gets TLC.
//
// Without Java it says loudly that nothing was checked, and fails only where
// CI=true is in the environment.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "proof:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("proof", flag.ExitOnError)
	release := flags.Bool("release", false, "make the runs of a release, too")
	only := flags.String("run", "", "make the runs whose name matches this expression; nothing is then said about actions")
	result := flags.String("result", "", "write the result to this file")
	keep := flags.String("keep", "", "write the output of each run to this folder")
	limit := flags.Duration("limit", 20*time.Minute, "stop a run after this time, as one that did not end")
	jobs := flags.Int("jobs", 3, "how many runs are made at once, each with less than one processor")
	list := flags.Bool("list", false, "print the runs and make none")
	traces := flags.Int("traces", 0, "hold the traces of so many schedules against the specification, and nothing else")
	draws := flags.Bool("pictures", false, "write the counterexamples that are published, and nothing else")
	var torture Torture
	flags.StringVar(&torture.Stores, "torture", "", "hold the requests of a torture of these stores, separated by commas, or of all, against the specification, and nothing else")
	flags.DurationVar(&torture.Each, "torture-for", 30*time.Second, "how long each torture disturbs its clients")
	flags.Uint64Var(&torture.Seed, "torture-seed", 1, "the seed of the tortures")
	recorded := flags.String("recorded", "", "hold the files that a torture recorded, separated by commas and named after their stores, against the specification, and nothing else")
	sweep := flags.String("sweep", "", "take away each guard of the actions of this module, and nothing else: -run picks actions, -limit bounds the processor time of each run")
	edges := flags.String("edges", "", "check or write: compare the walks of drivertest with those of module Seam, or write them, and nothing else")
	_ = flags.Parse(args) // it exits by itself

	if *traces > 0 {
		k, err := checker(ctx, *limit, *keep)
		if k == nil {
			return err
		}
		dir, err := os.MkdirTemp("", "holdfast-proof-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		checked, err := isChecked(".")
		if err != nil {
			return err
		}
		k.archive(ctx, dir)
		k.Needs = !checked || *traces > buildSchedules
		k.Jobs = max(*jobs-2, 1) // beside them run, in two parts, those that have to be refused
		return runTraces(ctx, k, *traces, *result)
	}
	if torture.Stores != "" {
		k, err := checker(ctx, *limit, *keep)
		if k == nil {
			return err
		}
		k.Jobs = *jobs
		return torture.run(ctx, k)
	}
	if *recorded != "" {
		k, err := checker(ctx, *limit, *keep)
		if k == nil {
			return err
		}
		k.Jobs = *jobs
		return runRecorded(ctx, k, strings.Split(*recorded, ","))
	}
	if *edges != "" {
		k, err := checker(ctx, *limit, *keep)
		if k == nil {
			return err
		}
		return k.makeEdges(ctx, *edges == "write")
	}
	pick, err := regexp.Compile(*only)
	if err != nil {
		return err
	}
	configs, err := readConfigs("proof/cfg")
	if err != nil {
		return err
	}
	if *sweep != "" {
		k, err := checker(ctx, *limit, *keep)
		if k == nil {
			return err
		}
		k.Effort, k.Limit = *limit, 20*max(*limit, time.Minute)
		return k.sweep(ctx, *sweep, configs, pick, *jobs)
	}
	text, err := os.ReadFile("proof/mutants.json")
	if err != nil {
		return err
	}
	mutants, err := parseMutants(text, configs)
	if err != nil {
		return err
	}
	checked, err := isChecked(".")
	if err != nil {
		return err
	}
	sum, err := sumOf(".")
	if err != nil {
		return err
	}
	checked = checked && *only == "" && *result == ""
	runs, err := plan(configs, mutants, *release, checked)
	if err != nil {
		return err
	}
	var picked []*Run
	for _, r := range runs {
		if pick.MatchString(r.Name) && (!*draws || r.Config.Picture != "") {
			picked = append(picked, r)
		}
	}
	if *list {
		for _, r := range picked {
			fmt.Println(r.Name)
		}
		return nil
	}
	k, err := checker(ctx, *limit, *keep)
	if k == nil {
		return err
	}
	k.Draw, k.Counts = *draws, *release || !checked
	dir, err := os.MkdirTemp("", "holdfast-proof-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	k.archive(ctx, dir)
	if err := k.makeAll(ctx, picked, *jobs); err != nil {
		return err
	}
	wrong := judgeAll(picked, *only == "" && !*draws)
	if *result != "" {
		lane := "build"
		if *release {
			lane = "release"
		}
		if after, err := sumOf("."); err != nil {
			return err
		} else if !*release || len(picked) < len(runs) || len(wrong) > 0 || after != sum { // or they were changed meanwhile
			sum = ""
		}
		if err := writeFile(*result, picked, wrong, lane, sum); err != nil {
			return err
		}
	}
	if len(wrong) > 0 {
		return fmt.Errorf("%d of %d runs and rules are wrong:\n\t%s", len(wrong), len(picked), strings.Join(wrong, "\n\t"))
	}
	var cpu time.Duration
	for _, r := range picked {
		cpu += r.Outcome.CPU
	}
	fmt.Printf("%d runs are as they have to be, in %.0f s of processor time\n", len(picked), cpu.Seconds())
	return nil
}

// checker returns what runs TLC, or nil where there is no Java: that is an error
// where CI=true.
func checker(ctx context.Context, limit time.Duration, keep string) (*Checker, error) {
	if _, err := exec.LookPath("java"); err != nil {
		fmt.Println("PROOF NOT CHECKED: no Java")
		if os.Getenv("CI") == "true" {
			return nil, fmt.Errorf("there is no Java: install openjdk-17-jre-headless: %w", err)
		}
		return nil, nil
	}
	jar, err := exec.CommandContext(ctx, "scripts/proof-tools").Output()
	if err != nil {
		return nil, fmt.Errorf("scripts/proof-tools: %w", err)
	}
	return &Checker{Jar: strings.TrimSpace(string(jar)), Modules: "proof", Limit: limit, Keep: keep}, nil
}

// makeAll makes runs, several at once. It returns the first error.
func (k *Checker) makeAll(ctx context.Context, runs []*Run, jobs int) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	todo := make(chan *Run)
	var working sync.WaitGroup
	for range max(jobs, 1) {
		working.Go(func() {
			for r := range todo {
				if ctx.Err() != nil {
					continue
				}
				if err := k.make(ctx, r); err != nil {
					cancel(err)
				}
			}
		})
	}
	// Those of a release take longest: they come first, so that none is left alone at the end.
	for _, lane := range []string{"release", "build"} {
		for _, r := range runs {
			if r.Config.Lane == lane {
				todo <- r
			}
		}
	}
	close(todo)
	working.Wait()
	return context.Cause(ctx)
}

// make makes one run and prints a line about it.
func (k *Checker) make(ctx context.Context, r *Run) (err error) {
	file := strings.NewReplacer(" ", "-", "/", "-", ",", "").Replace(r.Name)
	// A run without a verdict says nothing about the specification: TLC did not read a
	// module that was there, once in some thousand runs. It is made once more.
	for attempt := range 2 {
		r.Outcome, r.Took, err = k.check(ctx, file, r.Config, k.Counts && r.Kind == Check && r.Config.Lane == "build" && !r.Config.Uncounted && r.Config.Walks == 0)
		if err == nil {
			err = ctx.Err()
		}
		if err != nil || r.Outcome.Verdict != Failed {
			break
		}
		if attempt == 0 {
			fmt.Printf("%-50s once more: %s\n", r.Name, r.Outcome.Reason)
		}
	}
	if err != nil {
		return fmt.Errorf("%s: %w", r.Name, err)
	}
	r.judge()
	if r.Config.Picture != "" && r.Kind == Witness && r.Wrong == "" {
		if r.Wrong, err = k.publish(ctx, r, pictures, k.Draw); err != nil {
			return err
		}
	}
	o := r.Outcome
	fmt.Printf("%-50s %-9s %8d states, depth %2d, %5.1f s, processor %5.1f s %s\n", r.Name, o.Verdict, max(o.Distinct, o.Generated*int64(min(r.Config.Walks, 1))), max(o.Depth, len(o.Trace)), r.Took.Seconds(), o.CPU.Seconds(), r.Wrong)
	return nil
}

// writeFile writes the result of runs to a file, and keeps its section about traces. sum is
// that of a release, empty for other runs.
func writeFile(name string, runs []*Run, wrong []string, lane, sum string) error {
	var b strings.Builder
	writeResult(&b, runs, wrong, lane)
	if sum != "" {
		writeSum(&b, sum)
	}
	before, err := os.ReadFile(filepath.Clean(name))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if _, traces, ok := strings.Cut(string(before), tracesHead); ok {
		b.WriteString(tracesHead + traces)
	}
	return os.WriteFile(name, []byte(b.String()), 0o644)
}
