package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Checker runs TLC.
type Checker struct {
	Jar     string            // of TLC
	Modules string            // the folder of the *.tla
	Jobs    int               // how many modules of traces are checked at once
	Limit   time.Duration     // after which a run is stopped, as one that did not end
	Effort  time.Duration     // of processor time, after which a run is stopped as well; 0: no bound
	Memory  int               // gigabytes of Java's heap, another bound of a run that has one in Effort; 0: 1
	Keep    string            // folder for the output of runs; empty: it is not kept
	More    map[string][]byte // further modules, by the names of their files
	Loose   bool              // traces are of servers, whose requests have an effect at some time before their answer
	Unfair  bool              // traces are of a store that keeps no order
	Apart   bool              // traces are of a store in which the ticket that a Join replaces leaves by a request of its own
	Passes  bool              // traces are of a store that passes over clients without a connection for pushes
	Without string            // a silent action of module Trace that is not taken; empty: all are
	Counts  bool              // actions are counted, so that one that is never taken shows; a run takes up to twice as long
	Needs   bool              // each silent action of module Trace must be one without which a script is refused
	Draw    bool              // write the counterexamples that are published, and do not compare them
	Dump    string            // file for the graph of states, without its extension; empty: none
	Archive string            // file with TLC's classes, read and verified; empty: none
}

// archive writes TLC's classes to a file of dir, as runs of this Java read them: a
// run of a small world takes a sixth less by it. Where Java cannot, runs go on without.
func (k *Checker) archive(ctx context.Context, dir string) {
	file := filepath.Join(dir, "tlc.jsa")
	with := *k
	with.Archive, with.Keep = "", ""
	c := &Config{
		Name: "LineAbs", Spec: "Spec", Invariants: []string{"InOrder"},
		Constants: []Constant{{"Tickets", "{1, 2}"}, {"Writers", "{}"}, {"Limit", "1"}, {"Numbers", "{0, 1}"}},
	}
	o, _, err := with.check(ctx, "archive", c, false, "-Xlog:disable", "-XX:ArchiveClassesAtExit="+file)
	if err == nil && o.Verdict == Holds && fileExists(file) {
		k.Archive = file
	}
}

func fileExists(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}

// check runs TLC on c in a folder of its own, where it may leave what it likes.
func (k *Checker) check(ctx context.Context, name string, c *Config, coverage bool, java ...string) (*Outcome, time.Duration, error) {
	dir, err := os.MkdirTemp("", "holdfast-proof-")
	if err != nil {
		return nil, 0, err
	}
	defer os.RemoveAll(dir)
	if err := k.furnish(dir, c); err != nil {
		return nil, 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, k.Limit)
	defer cancel()
	// TLC unpacks its standard modules below the folder for temporary files, and
	// removes them: runs beside each other each have their own.
	temporary := filepath.Join(dir, "temporary")
	if err := os.Mkdir(temporary, 0o700); err != nil {
		return nil, 0, err
	}
	if k.Archive != "" {
		java = append(java, "-XX:SharedArchiveFile="+k.Archive)
	}
	args := append(java, "-Djava.io.tmpdir="+temporary, "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", fmt.Sprintf("-Xmx%dg", max(k.Memory, 1)), "-cp", k.Jar, "tlc2.TLC",
		"-workers", "1", "-fp", "0", "-seed", "0", "-metadir", filepath.Join(dir, "states"), "-config", "run.cfg")
	if coverage {
		args = append(args, "-coverage", "60")
	}
	if c.Walks > 0 {
		args = append(args, "-simulate", fmt.Sprintf("num=%d", c.Walks), "-depth", strconv.Itoa(c.Steps))
	}
	if k.Dump != "" {
		args = append(args, "-dump", "dot,actionlabels", k.Dump)
	}
	args = append(args, c.Module())
	cmd := exec.CommandContext(ctx, "java", args...)
	if k.Effort > 0 {
		cmd = exec.CommandContext(ctx, "sh", append([]string{"-c", `ulimit -c 0; ulimit -t "$0" && exec java "$@"`, strconv.Itoa(int(k.Effort.Seconds()))}, args...)...)
	}
	cmd.Dir = dir
	cmd.WaitDelay = 10 * time.Second
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	began := time.Now()
	err = cmd.Run() // TLC's status adds nothing to what it prints
	took := time.Since(began)
	var cpu time.Duration
	if s := cmd.ProcessState; s != nil {
		cpu = s.UserTime() + s.SystemTime()
	}
	if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited && ctx.Err() == nil {
		return nil, took, fmt.Errorf("TLC cannot be run: %w", err)
	}
	if k.Keep != "" {
		if err := os.WriteFile(filepath.Join(k.Keep, name+".out"), []byte(out.String()), 0o644); err != nil {
			return nil, took, err
		}
		for more, text := range k.More {
			if err := os.WriteFile(filepath.Join(k.Keep, name+"-"+more), text, 0o644); err != nil {
				return nil, took, err
			}
		}
	}
	o, err := parseOutput(out.String())
	if err != nil {
		return nil, took, err
	}
	o.CPU = cpu
	if o.Verdict == Failed && (errors.Is(ctx.Err(), context.DeadlineExceeded) || k.isAtBound(cpu, o.Reason)) {
		o.Verdict, o.Reason = Unended, "" // it was stopped before it said how far it was
	}
	return o, took, nil
}

// isAtBound reports whether a run that failed for a reason, after some processor time, has
// reached its bound. The kernel that stops a run at its bound may tell less time for it than
// it has counted: 0.996 of 1 s were seen.
func (k *Checker) isAtBound(cpu time.Duration, reason string) bool {
	return k.Effort > 0 && (cpu >= k.Effort*9/10 || strings.Contains(reason, "Java ran out of memory"))
}

// furnish puts the modules and the configuration into dir.
func (k *Checker) furnish(dir string, c *Config) error {
	files, err := filepath.Glob(filepath.Join(k.Modules, "*.tla"))
	if err != nil {
		return err
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(f)), text, 0o644); err != nil {
			return err
		}
	}
	for name, text := range k.More {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(dir, "run.cfg"), []byte(c.text()), 0o644)
}
