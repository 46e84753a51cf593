package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/holdfast-go/holdfast/internal/safety/trace"
)

// Sizes of the lane of traces, in schedules.
const (
	buildSchedules = 2000 // at most, of a build, which has two traces of each; a release has more
	naiveSchedules = 40   // of the second store, which is refused nothing either
	flawSchedules  = 200  // in one of these each flaw has to be refused
	flawFirst      = 10   // are recorded and checked first: most flaws show in them
	coreFirst      = 10   // of a core with a mistake, before flawSchedules
	changesOfEach  = 40   // traces that are changed in each way
	changesRefused = 95   // per cent that have to be refused
)

// rareFlaws are the flaws that the first schedules do not show, with a seed from which on a
// few do. Where they no longer do, all schedules are asked.
const rareFlaws = "flaw=join-renews-not@32,flaw=leave-is-release@28,flaw=left-forgotten@82,flaw=owner-dies@33," +
	"flaw=owner-queues@21,flaw=readers-overtake@50,flaw=replaces-token@24,flaw=try-overtakes@76"

// runTraces makes the lane of traces: those of two sound stores are accepted, and
// those of stores with a flaw, of a core with a bug, and changed ones are refused. Its
// counts become a section of the file result, if that has a name.
func runTraces(ctx context.Context, k *Checker, schedules int, result string) error {
	traces, err := recordHalves(ctx, "memory", schedules)
	if err != nil {
		return err
	}
	// The traces that have to be refused are recorded, with mistakes built in, while those
	// of memory are checked: either alone leaves a processor idle for half of the time.
	var memory *Accepted
	var failed error
	var checking sync.WaitGroup
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	checking.Go(func() {
		if memory, failed = k.sound(ctx, "memory", schedules, traces, true); failed != nil {
			cancel()
		}
	})
	naive, refused, err := k.others(ctx, schedules, traces)
	if err != nil {
		cancel()
	}
	checking.Wait()
	if err := errors.Join(failed, err); err != nil {
		return err
	}
	wrong := slices.Concat(wrongOf("memory", memory), wrongOf("naive", naive), refused)
	parts, err := takenParts(filepath.Join(k.Modules, "Trace.tla"))
	if err != nil {
		return err
	}
	for _, part := range parts {
		if len(memory.Taken[part])+len(naive.Taken[part]) == 0 {
			wrong = append(wrong, fmt.Sprintf("no trace took %s of module Trace", part))
		}
	}
	if result != "" {
		if err := addTraces(result, schedules, memory, naive, len(wrong)); err != nil {
			return err
		}
	}
	if len(wrong) > 0 {
		return fmt.Errorf("the traces are not as they have to be:\n\t%s", strings.Join(wrong, "\n\t"))
	}
	return nil
}

// recordHalves records schedules in two parts at once: each takes one processor.
func recordHalves(ctx context.Context, source string, schedules int) ([]trace.Trace, error) {
	var (
		recording sync.WaitGroup
		halves    [2]map[string][]trace.Trace
		failed    [2]error
	)
	half := schedules / 2
	for i, part := range [2][2]int{{1, half}, {half + 1, schedules - half}} {
		if part[1] > 0 {
			recording.Go(func() { halves[i], failed[i] = record(ctx, source, part[0], part[1], "") })
		}
	}
	recording.Wait()
	return slices.Concat(halves[0][source], halves[1][source]), errors.Join(failed[:]...)
}

// others checks the traces of the second store, which have to be accepted, and those
// that have to be refused. It returns what was not as it has to be of the latter.
func (k *Checker) others(ctx context.Context, schedules int, traces []trace.Trace) (naive *Accepted, wrong []string, err error) {
	few := min(naiveSchedules, schedules)
	recorded, err := record(ctx, "naive", 1, few, "")
	if err != nil {
		return nil, nil, err
	}
	if naive, err = k.sound(ctx, "naive", few, recorded["naive"], false); err != nil {
		return nil, nil, err
	}
	// The core is compiled for each of its mistakes while the checker looks at the others.
	parts := [][]func(context.Context) ([]string, error){
		{
			func(ctx context.Context) ([]string, error) { return k.refusesStores(ctx, "flaws,"+rareFlaws, false) },
			func(ctx context.Context) ([]string, error) { return k.refusesStores(ctx, "planted", true) },
			func(ctx context.Context) ([]string, error) { return k.holdScripts(ctx, false) },
		},
		{
			k.holdCoreScripts,
			func(ctx context.Context) ([]string, error) { return k.refusesCores(ctx, coreBugsOf(schedules)) },
			func(ctx context.Context) ([]string, error) { return k.refusesChanges(ctx, traces) },
		},
	}
	found, failed := make([][]string, len(parts)), make([]error, len(parts))
	var working sync.WaitGroup
	for i, part := range parts {
		working.Go(func() {
			for _, bite := range part {
				more, err := bite(ctx)
				if err != nil {
					failed[i] = err
					return
				}
				found[i] = append(found[i], more...)
			}
		})
	}
	working.Wait()
	if err := errors.Join(failed...); err != nil {
		return nil, nil, err
	}
	wrong = slices.Concat(found...)
	return naive, wrong, nil
}

// wrongOf returns the refusals of a store without a flaw.
func wrongOf(store string, a *Accepted) (wrong []string) {
	for _, r := range a.Refused {
		wrong = append(wrong, store+": "+r.String())
	}
	return wrong
}

// sound checks the traces of a store without a flaw, all of which have to be accepted.
func (k *Checker) sound(ctx context.Context, source string, schedules int, traces []trace.Trace, lazy bool) (*Accepted, error) {
	a, err := k.checkTraces(ctx, source, traces, lazy)
	if err != nil {
		return nil, err
	}
	fmt.Printf("%-45s %d schedules, %d traces, %d events: %d refused, %.0f s\n", source, schedules, a.Traces, a.Events, len(a.Refused), a.Seconds)
	return a, nil
}

// refusesStores returns the stores of sources, as record has them, none of whose traces is
// refused.
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
		kind, _, _ := strings.Cut(sources, ",")
		refused, _, err := k.refusedOf(ctx, kind, recorded, lazy)
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
// each store that has one, and the checker's word about all.
func (k *Checker) refusedOf(ctx context.Context, name string, recorded map[string][]trace.Trace, lazy bool) (map[string]*Refusal, *Accepted, error) {
	var all []trace.Trace
	for _, store := range slices.Sorted(maps.Keys(recorded)) {
		all = append(all, recorded[store]...)
	}
	a, err := k.checkTraces(ctx, name, all, lazy)
	if err != nil {
		return nil, nil, err
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
	return refused, a, nil
}

// coreBugs are mistakes in the core, made in a copy of one file, whose requests, or whose
// words to its user, the specification refuses: one for each part of module Trace that does.
var coreBugs = []coreBug{
	{
		"a Leave does not say that a Join may be pending", "cleaner.go",
		"pendingLeave{ref, until})", "pendingLeave{driver.Ref{Ticket: ref.Ticket, State: ref.State}, until})",
		"Join of a ticket that left", 1, "",
	},
	{
		"a claim lasts for the whole lease", "ticket.go",
		"sent.add(lease - lease/100 - min(lease/100, 20*time.Millisecond))", "sent.add(lease)",
		"a loss is told", 1, "",
	},
	{
		"a push grants a ticket whose claim is over", "queue.go",
		"if t.valid(q.c.clock.now()) && !t.mayHearStalePush() {\n\t\t\tq.onGrant(t, st.Token)", "if true {\n\t\t\tq.onGrant(t, st.Token)",
		"its claim lasts", 51, "",
	},
	{
		"a hand-off keeps the token", "queue.go",
		"t.handOffs++\n\t\t\tnext.wait.local = true", "next.wait.local = true",
		"tokens grow", 41, "",
	},
	{
		"a grant goes to all goroutines that wait", "queue.go",
		"if q.key.readers() {\n\t\tq.openTicket = t", "if true {\n\t\tq.openTicket = t",
		"alone with its ticket", 21, "",
	},
	{
		"a renewal that fails leaves the ticket", "renewer.go",
		"st.State = 0\n", "t.queue.c.cleaner.addHeld(t)\n",
		"its holds have ended", 1, "",
	},
	{
		"a loss is no HoldDone", "release.go",
		"q.c.report.ended(lost...)", "_ = lost",
		"each hold has ended", 1, "",
	},
}

// releaseCoreBugs are more of them, which a release records, and no build: the core is
// compiled for each.
var releaseCoreBugs = []coreBug{
	{
		"a claim counts from the answer", "queue.go",
		"t.extend(sent, st.Lease)\n\t\tif st.Holder", "t.extend(q.c.clock.now(), st.Lease)\n\t\tif st.Holder",
		"a loss is told", 1, "",
	},
	{
		"a claim that is over ends no hold", "expiry.go",
		"t.lose(LossExpired)", "_ = t",
		"a loss is told", 1, "",
	},
	{
		"a renewal answered gone ends no hold", "queue.go",
		"case driver.Gone:\n\t\tif t.state == driver.Held {\n\t\t\tq.mu.Unlock()\n\t\t\tt.lose(LossGone)\n", "case driver.Gone:\n\t\tif t.state == driver.Held {\n\t\t\tq.mu.Unlock()\n",
		"a loss is told", 91, "",
	},
	{
		"the first reader that unlocks leaves", "queue.go",
		"t.holds.remove(h)\n\tif t.holds.first != nil {", "t.holds.remove(h)\n\tif false {",
		"its holds have ended", 31, "",
	},
	{
		"a push that its ticket is gone ends no hold", "queue.go",
		"\tdefault:\n\t\tq.mu.Unlock()\n\t\tt.lose(LossGone)\n\t\treturn\n\t}\n\tq.mu.Unlock()\n", "\tdefault:\n\t}\n\tq.mu.Unlock()\n",
		"a loss is told", 8, "",
	},
	{
		"Err of a lost hold is nil", "hold.go",
		"defer h.root.mu.Unlock()\n\treturn h.endErr\n", "defer h.root.mu.Unlock()\n\tif _, lost := h.endErr.(*LostError); lost {\n\t\treturn nil\n\t}\n\treturn h.endErr\n",
		"a loss stays", 1, "",
	},
	{
		"the last one to give up leaves no ticket", "queue.go",
		"\tdefault:\n\t\tq.endPending(left)\n\t}", "\tdefault:\n\t}",
		"its places have ended", 5, "",
	},
	{
		"a client that holds joins once more", "queue.go",
		"q.pending != nil || q.key.exclusive() && q.heldCount > 0 {", "q.pending != nil {",
		"one ticket at a time", 2, "",
	},
	{
		"a release does not say that a Join may be pending", "release.go",
		"State: driver.Held, JoinPending: t.joinPending}}}", "State: driver.Held}}}",
		"Join of a ticket that left", 82, "",
	},
	{
		"goroutines of a named owner hand on", "queue.go",
		`next != nil && q.key.owner == "" && !q.key.readers()`, `next != nil && !q.key.readers()`,
		"an owner has one token", 25, "",
	},
	{
		"a client watches again", "watch.go",
		"if err == nil {\n\t\t\treturn\n", "if err == nil && tries > 0 {\n\t\t\treturn\n",
		"it watches once", 1, "",
	},
	{
		"a loss makes no waiter join", "release.go",
		"\tq.mu.Lock()\n\tq.ensureJoiner()\n\tq.mu.Unlock()\n}", "}",
		"its ticket waits", 0, "a loss before a waiter",
	},
	{
		"a goroutine takes a grant that was lost", "acquire.go",
		"if t.state != driver.Held {\n\t\treturn false\n\t}\n\th.taken = true", "h.taken = true",
		"a grant that the client knows", 0, "a loss meets a grant",
	},
	{
		"a grant that nobody waits for is kept", "queue.go",
		"\tif h == nil {\n\t\tq.endTicket(t, left)\n", "\tif h == nil {\n\t\tq.endTicket(t, kept)\n",
		"its places have ended", 0, "a hand-off overtakes a Join",
	},
	{
		"a grant that comes as the wait ends is kept", "queue.go",
		"if t := q.dropHold(h); t != nil {\n\t\t\tq.c.cleaner.addHeld(t)\n\t\t}", "_ = q.dropHold(h)",
		"its places have ended", 0, "a grant meets the end of a wait",
	},
	{
		"an early push grants the place of a later Join", "queue.go",
		"if st.State == driver.Waiting && t.joinPending && q.c.clock.now() >= claimEnd(t.joinSentAt, q.key.ttl) {", "if false {",
		"a grant that the client knows", 0, "a place that has ended",
	},
	{
		"a late push grants the place of a later Join", "queue.go",
		"t.valid(q.c.clock.now()) && !t.mayHearStalePush()", "t.valid(q.c.clock.now())",
		"a grant that the client knows", 0, "a push of an ended place",
	},
	{
		"a Try hears no push before its answer", "acquire.go",
		"\tq.c.renewer.track(t)\n", "\tif !w.try {\n\t\tq.c.renewer.track(t)\n\t}\n",
		"a grant that the client knows", 0, "a Try is broken before its answer",
	},
}

// coreBug is a mistake in the core: a text of a file that is another one, and the part of
// module Trace that refuses what comes of it, soonest from a seed on, or in a script.
type coreBug struct {
	name, file, is, was, refused string
	seed                         int
	script                       string // empty: it shows in schedules
}

// coreBugsOf returns the mistakes in the core for a lane of so many schedules.
func coreBugsOf(schedules int) []coreBug {
	if schedules <= buildSchedules {
		return coreBugs
	}
	return slices.Concat(coreBugs, releaseCoreBugs)
}

// refusesCores returns the mistakes in the core that no refusal names. Most show in a few
// schedules from their seed on; the others have all of them.
func (k *Checker) refusesCores(ctx context.Context, bugs []coreBug) (wrong []string, err error) {
	open := bugs
	for _, few := range []bool{true, false} {
		recorded, err := k.recordCores(ctx, open, few)
		if err != nil {
			return nil, err
		}
		if open, err = k.acceptedCores(ctx, open, recorded); err != nil {
			return nil, err
		}
	}
	for _, bug := range open {
		wrong = append(wrong, fmt.Sprintf("a core in which %s: %q is the reason of no refusal in %d schedules", bug.name, bug.refused, flawSchedules))
	}
	return wrong, nil
}

// recordCores records a few schedules of a core with each of these mistakes, or all.
func (k *Checker) recordCores(ctx context.Context, bugs []coreBug, few bool) ([][]trace.Trace, error) {
	recorded, failed := make([][]trace.Trace, len(bugs)), make([]error, len(bugs))
	var working sync.WaitGroup
	room := make(chan struct{}, max(k.Jobs, 1))
	for i, bug := range bugs {
		room <- struct{}{}
		working.Go(func() {
			defer func() { <-room }()
			first, schedules := 1, flawSchedules
			if few {
				first, schedules = bug.seed, coreFirst
			}
			source := cmp.Or(bug.script, "memory")
			all, err := recordChanged(ctx, bug.file, bug.is, bug.was, func(overlay string) (map[string][]trace.Trace, error) {
				if bug.script != "" {
					return recordCoreScripts(ctx, source, overlay)
				}
				return record(ctx, source, first, schedules, overlay)
			})
			if err != nil {
				failed[i] = fmt.Errorf("%s: %w", bug.name, err)
			}
			recorded[i] = all[source]
		})
	}
	working.Wait()
	return recorded, errors.Join(failed...)
}

// holdCoreScripts holds the scripts of the core against the specification. It returns the
// refusals: the core has none of the mistakes that they are for.
func (k *Checker) holdCoreScripts(ctx context.Context) (wrong []string, err error) {
	recorded, err := recordCoreScripts(ctx, "", "")
	if err != nil {
		return nil, err
	}
	refused, a, err := k.refusedOf(ctx, "core-scripts", recorded, false)
	if err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(refused)) {
		wrong = append(wrong, name+": "+refused[name].String())
	}
	fmt.Printf("%-45s %d, %d events: %d refused\n", "scripts of the core", len(recorded), a.Events, len(a.Refused))
	return wrong, nil
}

// acceptedCores returns the mistakes that are the reason of no refusal of their records.
func (k *Checker) acceptedCores(ctx context.Context, bugs []coreBug, recorded [][]trace.Trace) (open []coreBug, err error) {
	if len(bugs) == 0 {
		return nil, nil
	}
	var schedules, scripts []trace.Trace
	for i, bug := range bugs {
		if bug.script == "" {
			schedules = append(schedules, recorded[i]...)
		} else {
			scripts = append(scripts, recorded[i]...)
		}
	}
	refusals := map[*trace.Event]*Refusal{}
	for name, traces := range map[string][]trace.Trace{"cores": schedules, "cores-scripts": scripts} {
		a, err := k.checkTraces(ctx, name, traces, name == "cores")
		if err != nil {
			return nil, err
		}
		for _, r := range a.Refused {
			refusals[&r.Trace.Events[0]] = r
		}
	}
	for i, bug := range bugs {
		j := slices.IndexFunc(recorded[i], func(t trace.Trace) bool {
			r := refusals[&t.Events[0]]
			return r != nil && r.What == bug.refused
		})
		if j < 0 {
			open = append(open, bug)
			continue
		}
		r := refusals[&recorded[i][j].Events[0]]
		fmt.Printf("%-45s refused: seed %d, %s of %q: %s\n", "core: "+bug.name, r.Trace.Seed, r.Trace.Events[r.At].Kind, r.Trace.Name, r.What)
	}
	return open, nil
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
