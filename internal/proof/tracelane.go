package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/holdfast-go/holdfast/internal/safety/trace"
)

// Sizes of the lane of traces, in schedules.
const (
	naiveSchedules = 40  // of the second store, which is refused nothing either
	flawSchedules  = 200 // in one of these each flaw has to be refused
	flawFirst      = 20  // are recorded and checked first: most flaws show in them
	changesOfEach  = 40  // traces that are changed in each way
	changesRefused = 95  // per cent that have to be refused
)

// runTraces makes the lane of traces: those of two sound stores are accepted, and
// those of stores with a flaw, of a core with a bug, and changed ones are refused. Its
// counts become a section of the file result, if that has a name.
func runTraces(ctx context.Context, k *Checker, schedules int, result string) error {
	var wrong []string
	memory, err := k.sound(ctx, "memory", schedules, true, &wrong)
	if err != nil {
		return err
	}
	naive, err := k.sound(ctx, "naive", min(naiveSchedules, schedules), false, &wrong)
	if err != nil {
		return err
	}
	parts, err := takenParts(filepath.Join(k.Modules, "Trace.tla"))
	if err != nil {
		return err
	}
	for _, part := range parts {
		if memory.accepted.Taken[part]+naive.accepted.Taken[part] == 0 {
			wrong = append(wrong, fmt.Sprintf("no trace took %s of module Trace", part))
		}
	}
	for _, bite := range []func(context.Context) ([]string, error){
		func(ctx context.Context) ([]string, error) { return k.refusesStores(ctx, "flaws", false) },
		func(ctx context.Context) ([]string, error) { return k.refusesStores(ctx, "planted", true) },
		k.refusesCores,
		func(ctx context.Context) ([]string, error) { return k.refusesChanges(ctx, memory.traces) },
	} {
		more, err := bite(ctx)
		if err != nil {
			return err
		}
		wrong = append(wrong, more...)
	}
	if result != "" {
		if err := addTraces(result, schedules, memory.accepted, naive.accepted, len(wrong)); err != nil {
			return err
		}
	}
	if len(wrong) > 0 {
		return fmt.Errorf("the traces are not as they have to be:\n\t%s", strings.Join(wrong, "\n\t"))
	}
	return nil
}

// soundTraces are traces with the checker's word about them.
type soundTraces struct {
	traces   []trace.Trace
	accepted *Accepted
}

// sound records a store without a flaw, all of whose traces have to be accepted.
func (k *Checker) sound(ctx context.Context, source string, schedules int, lazy bool, wrong *[]string) (*soundTraces, error) {
	all, err := record(ctx, source, 1, schedules, "")
	if err != nil {
		return nil, err
	}
	a, err := k.checkTraces(ctx, source, all[source], lazy)
	if err != nil {
		return nil, err
	}
	fmt.Printf("%-45s %d schedules, %d traces, %d events: %d refused, %.0f s\n", source, schedules, a.Traces, a.Events, len(a.Refused), a.Seconds)
	for _, r := range a.Refused {
		*wrong = append(*wrong, source+": "+r.String())
	}
	return &soundTraces{all[source], a}, nil
}

// refusesStores returns the stores none of whose traces is refused.
func (k *Checker) refusesStores(ctx context.Context, sources string, lazy bool) (wrong []string, err error) {
	open := map[string]bool{}
	next, round := 1, flawFirst
	for ; next <= flawSchedules; next, round = next+round, min(4*round, flawSchedules-next-round+1) {
		ask := sources
		if next > 1 {
			if len(open) == 0 {
				break
			}
			ask = strings.Join(slices.Sorted(maps.Keys(open)), ",")
		}
		recorded, err := record(ctx, ask, next, round, "")
		if err != nil {
			return nil, err
		}
		open = map[string]bool{}
		refused, err := k.refusedOf(ctx, sources, recorded, lazy)
		if err != nil {
			return nil, err
		}
		for _, name := range slices.Sorted(maps.Keys(recorded)) {
			if r := refused[name]; r != nil {
				fmt.Printf("%-45s refused: seed %d, %s of %q: %s\n", name, r.Trace.Seed, r.Trace.Events[r.At].Kind, r.Trace.Name, r.What)
			} else {
				open[name] = true
			}
		}
	}
	for name := range open {
		wrong = append(wrong, fmt.Sprintf("%s: all traces of %d schedules are accepted", name, flawSchedules))
	}
	return wrong, nil
}

// refusedOf checks the traces of several stores at once, and returns a refusal of
// each store that has one.
func (k *Checker) refusedOf(ctx context.Context, name string, recorded map[string][]trace.Trace, lazy bool) (map[string]*Refusal, error) {
	var all []trace.Trace
	for _, store := range slices.Sorted(maps.Keys(recorded)) {
		all = append(all, recorded[store]...)
	}
	a, err := k.checkTraces(ctx, name, all, lazy)
	if err != nil {
		return nil, err
	}
	refused := map[string]*Refusal{}
	for _, r := range a.Refused {
		for store, traces := range recorded {
			mine := slices.ContainsFunc(traces, func(t trace.Trace) bool { return &t.Events[0] == &r.Trace.Events[0] })
			if mine && refused[store] == nil {
				refused[store] = r
			}
		}
	}
	return refused, nil
}

// coreBugs are mistakes in the core, made in a copy of one file, whose requests the
// specification refuses.
var coreBugs = []struct{ name, file, is, was, refused string }{
	{
		"a Leave does not say that a Join may be pending", "cleaner.go",
		"pendingLeave{ref, until})", "pendingLeave{driver.Ref{Ticket: ref.Ticket, State: ref.State}, until})",
		"Join of a ticket that left",
	},
}

// refusesCores returns the mistakes in the core that no refusal names.
func (k *Checker) refusesCores(ctx context.Context) (wrong []string, err error) {
	for _, bug := range coreBugs {
		r, err := k.refusedCore(ctx, bug.file, bug.is, bug.was, bug.refused)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", bug.name, err)
		}
		if r == nil {
			wrong = append(wrong, fmt.Sprintf("a core in which %s: %q is the reason of no refusal in %d schedules", bug.name, bug.refused, flawSchedules))
			continue
		}
		fmt.Printf("%-45s refused: seed %d, %s of %q: %s\n", "core: "+bug.file, r.Trace.Seed, r.Trace.Events[r.At].Kind, r.Trace.Name, r.What)
	}
	return wrong, nil
}

// refusedCore records a core with a text of a file replaced, and returns a refusal
// for that reason.
func (k *Checker) refusedCore(ctx context.Context, file, is, was, reason string) (*Refusal, error) {
	all, err := recordChanged(ctx, file, is, was, func(overlay string) (map[string][]trace.Trace, error) {
		return record(ctx, "memory", 1, flawSchedules, overlay)
	})
	if err != nil {
		return nil, err
	}
	a, err := k.checkTraces(ctx, "core", all["memory"], true)
	if err != nil {
		return nil, err
	}
	for _, r := range a.Refused {
		if r.What == reason {
			return r, nil
		}
	}
	return nil, nil
}

// recordChanged records what is built with a text of a file replaced by another one.
func recordChanged(ctx context.Context, file, is, was string, recorded func(overlay string) (map[string][]trace.Trace, error)) (map[string][]trace.Trace, error) {
	text, err := os.ReadFile(filepath.Clean(file))
	if err != nil {
		return nil, err
	}
	if n := strings.Count(string(text), is); n != 1 {
		return nil, fmt.Errorf("%s has %q %d times, not once", file, is, n)
	}
	dir, err := os.MkdirTemp("", "holdfast-changed-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	changed := filepath.Join(dir, filepath.Base(file))
	if err := os.WriteFile(changed, []byte(strings.Replace(string(text), is, was, 1)), 0o644); err != nil {
		return nil, err
	}
	here, err := filepath.Abs(file)
	if err != nil {
		return nil, err
	}
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {here: changed}})
	if err != nil {
		return nil, err
	}
	name := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(name, overlay, 0o644); err != nil {
		return nil, err
	}
	return recorded(name)
}

// refusesChanges changes one thing in each of many accepted traces.
func (k *Checker) refusesChanges(ctx context.Context, traces []trace.Trace) (wrong []string, err error) {
	rnd := rand.New(rand.NewPCG(1, 1))
	changed := map[string][]trace.Trace{}
	for _, what := range trace.Changes() {
		for _, i := range rnd.Perm(len(traces)) {
			if c, ok := trace.Change(rnd, &traces[i], what); ok {
				changed[what] = append(changed[what], *c)
			}
			if len(changed[what]) == changesOfEach {
				break
			}
		}
	}
	var all []trace.Trace
	for _, what := range trace.Changes() {
		all = append(all, changed[what]...)
	}
	a, err := k.checkTraces(ctx, "changed", all, true)
	if err != nil {
		return nil, err
	}
	refused := map[*trace.Event]bool{}
	for _, r := range a.Refused {
		refused[&r.Trace.Events[0]] = true
	}
	for _, what := range trace.Changes() {
		n := 0
		for _, t := range changed[what] {
			if refused[&t.Events[0]] {
				n++
			}
		}
		fmt.Printf("%-45s %d of %d refused\n", "changed: "+what, n, len(changed[what]))
		if m := len(changed[what]); m < changesOfEach/2 || 100*n < changesRefused*m {
			wrong = append(wrong, fmt.Sprintf("of %d traces in which one thing (%s) was changed, %d are refused", m, what, n))
		}
	}
	return wrong, nil
}
