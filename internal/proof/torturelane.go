package main

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/internal/safety/trace"
)

// tortureFlaws are flaws of a store that the lane has to refuse in each run, so that
// what is left open about times and outcomes lets nothing else pass. Clients of those
// after cut= lose their connections. RedLock keeps no order, and those after
// redlock-flaw= are what is refused without one.
var tortureFlaws = []string{
	"flaw=two-holders", "flaw=last-come", "flaw=leave-is-release", "cut=flaw=two-holders", "cut=flaw=last-come", "cut=flaw=leave-is-release", "cut=flaw=unsure-leaks",
	"redlock-flaw=two-holders", "redlock-flaw=idle-restarts",
}

// redlockBug is a mistake in the driver of RedLock, which takes a minority for enough.
var redlockBug = struct{ file, is, was string }{"redlock/redlock.go", "len(nodes)/2 + 1", "len(nodes) / 2"}

// passing are the stores whose clients lose their connections, and that pass over a waiter
// whose client has none for
// pushes, as docs/guarantees.md says of Redis.
var passing = map[string]bool{"cut=redis": true}

// soundNodes is RedLock on nodes in memory that have no flaw.
const soundNodes = "redlock-flaw="

// recorders are the tests that record a torture, by the folder of their module and
// their package there, with the stores that each has. A module of its own keeps its
// client library out of the root's requirements.
var recorders = []struct{ module, pkg string }{{".", "./internal/safety/trace"}, {"natslock", "."}}

// recorderOf returns the index in recorders of that of a store.
func recorderOf(store string) int {
	if strings.TrimPrefix(store, "cut=") == "nats" {
		return 1
	}
	return 0
}

// recordTorture records a torture of stores, and returns the traces by the store's name.
// With an overlay the build replaces files, as go build has it.
func recordTorture(ctx context.Context, stores []string, each time.Duration, overlay string) (map[string][]trace.Trace, error) {
	all := map[string][]trace.Trace{}
	for i, by := range recorders {
		var here []string
		for _, store := range stores {
			if recorderOf(store) == i {
				here = append(here, store)
			}
		}
		if len(here) == 0 {
			continue
		}
		names := strings.Join(here, ",")
		recorded, err := recordBy(ctx, by.module, by.pkg, names, []string{
			"-run", "^TestRecordTorture$", "-overlay", overlay, "-trace.torture", names, "-trace.torture-for", each.String(),
		})
		if err != nil {
			return nil, err
		}
		maps.Copy(all, recorded)
	}
	return all, nil
}

// runTorture holds the requests of torture runs on stores against the specification.
func runTorture(ctx context.Context, k *Checker, stores string, each time.Duration) error {
	recorded, err := recordTorture(ctx, append(strings.Split(stores, ","), tortureFlaws...), each, "")
	if err != nil {
		return err
	}
	bad, err := recordChanged(ctx, redlockBug.file, redlockBug.is, redlockBug.was, func(overlay string) (map[string][]trace.Trace, error) {
		return recordTorture(ctx, []string{soundNodes}, each, overlay)
	})
	if err != nil {
		return err
	}
	recorded["redlock-flaw=a minority"] = bad[soundNodes]
	return k.judgeTorture(ctx, recorded)
}

// runRecorded holds files that a torture recorded, as -keep has them, against the
// specification. A store with a flaw is judged as one.
func runRecorded(ctx context.Context, k *Checker, files []string) error {
	recorded := map[string][]trace.Trace{}
	for _, file := range files {
		traces, err := readTraces(file)
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		recorded[strings.TrimSuffix(filepath.Base(file), ".jsonl")] = traces
	}
	return k.judgeTorture(ctx, recorded)
}

// judgeTorture holds the traces of stores against the specification: those of a store
// with a flaw have to be refused, and those of others accepted.
func (k *Checker) judgeTorture(ctx context.Context, recorded map[string][]trace.Trace) error {
	loose := *k
	loose.Loose = true
	var wrong []string
	for _, store := range slices.Sorted(maps.Keys(recorded)) {
		var parts []trace.Trace
		flawed, back := strings.Contains(store, "flaw="), 0
		for i := range recorded[store] {
			cut, grow := trace.Cut(&recorded[store][i])
			if !grow {
				back++
			}
			if !grow && !flawed {
				wrong = append(wrong, fmt.Sprintf("%s: the tokens of lock %q go back", store, recorded[store][i].Name))
			}
			parts = append(parts, cut...)
		}
		loose.Passes = passing[store]
		loose.Unfair = strings.HasPrefix(strings.TrimPrefix(store, "cut="), "redlock")
		a, err := loose.checkTraces(ctx, "torture-"+store, parts, false)
		if err != nil {
			return err
		}
		fmt.Printf("%-45s %d locks, %d traces, %d events: %d refused, %.0f s\n", "torture: "+store, len(recorded[store]), a.Traces, a.Events, len(a.Refused), a.Seconds)
		if flawed {
			if len(a.Refused)+back == 0 {
				wrong = append(wrong, store+": all traces are accepted")
			}
			continue
		}
		for _, r := range a.Refused {
			wrong = append(wrong, store+": "+r.String())
		}
	}
	if len(wrong) > 0 {
		return fmt.Errorf("the traces are not as they have to be:\n\t%s", strings.Join(wrong, "\n\t"))
	}
	return nil
}
