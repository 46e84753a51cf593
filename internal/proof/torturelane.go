package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/internal/safety/trace"
)

// tortureFlaws are flaws of a store that the lane has to refuse, so that what is left open
// about times and outcomes lets nothing else pass. Clients of those
// after cut= lose their connections. RedLock keeps no order, and those after
// redlock-flaw= are what is refused without one.
var tortureFlaws = []string{
	"flaw=two-holders", "flaw=last-come", "flaw=leave-is-release", "cut=flaw=two-holders", "cut=flaw=last-come", "cut=flaw=leave-is-release", "cut=flaw=unsure-leaks",
	"redlock-flaw=two-holders", "redlock-flaw=idle-restarts", "cut=redlock-flaw=two-holders", "cut=redlock-flaw=idle-restarts",
}

// redlockBug is a mistake in the driver of RedLock, made in a copy of one file, on nodes
// in memory.
type redlockBug struct{ name, nodes, file, is, was string }

// minority is the script of a driver that takes a minority for enough.
const minority = "a minority"

// redlockBugs are those whose traces have to be refused.
var redlockBugs = []redlockBug{
	{"redlock-flaw=" + minority, soundNodes, "redlock/redlock.go", "len(nodes)/2 + 1", "len(nodes) / 2"},
	{"cut=redlock-flaw=" + minority, "cut=" + soundNodes, "redlock/redlock.go", "len(nodes)/2 + 1", "len(nodes) / 2"},
	{"cut=redlock-flaw=left enters", "cut=" + soundNodes, "redlock/entry.go", "Forget(id, tombstone)", "Forget(id, false)"},
}

// passing are the stores whose clients lose their connections, and that pass over a waiter
// whose client has none for
// pushes, as docs/guarantees.md says of Redis.
var passing = map[string]bool{"cut=redis": true}

// apart are the stores in which the ticket that a Join replaces leaves by a request of its
// own, as docs/design.md says of etcd: one whose Join was not answered may have left.
var apart = map[string]bool{"etcd": true, "cut=etcd": true}

// soundNodes is RedLock on nodes in memory that have no flaw.
const soundNodes = "redlock-flaw="

// tortureStores are all stores, and "all" stands for them.
var tortureStores = []string{
	"memory", "sqlite", "redis", "sentinel", "cluster", "redlock", "etcd", "zookeeper", "postgres", "mariadb", "nats",
	"cut=memory", "cut=sqlite", "cut=redis", "cut=sentinel", "cut=cluster", "cut=redlock", "cut=etcd", "cut=zookeeper", "cut=postgres", "cut=mariadb", "cut=nats",
}

// A Torture says which stores are tortured, with which seed, and for how long each.
type Torture struct {
	Stores string // names, separated by commas, or "all"
	Seed   uint64
	Each   time.Duration
	Files  string // folder in which each module leaves a folder of its recordings; empty: they are not kept
}

// decideIn and decideWith bound the check of a trace, in processor time and in gigabytes.
// The bound of a torture is that of the lane: it is stopped if it takes longer.
const (
	decideIn   = 2 * time.Minute
	decideWith = 4
	tortureIn  = 3 * time.Hour
)

// recorderOf returns the folder of the module with the test that records a store, and
// its package there. A module of its own keeps its client library out of the root's
// requirements.
func recorderOf(store string) (module, pkg string) {
	if strings.TrimPrefix(store, "cut=") == "nats" {
		return "tests", "./natslock"
	}
	return ".", "./internal/safety/trace"
}

// record records a torture of stores, and returns the traces by the store's name. Those
// of a module run at once with those of others, and all stores with a flaw. With an
// overlay the build replaces files, as go build has it.
func (t *Torture) record(ctx context.Context, stores []string, overlay string) (map[string][]trace.Trace, error) {
	type group struct{ module, pkg string }
	groups := map[group][]string{}
	for _, store := range stores {
		module, pkg := recorderOf(store)
		g := group{module, pkg}
		groups[g] = append(groups[g], store)
	}
	var (
		mu     sync.Mutex
		all    = map[string][]trace.Trace{}
		failed []error
	)
	var recording sync.WaitGroup
	for g, here := range groups {
		dir := ""
		if t.Files != "" {
			dir = filepath.Join(t.Files, filepath.Base(g.pkg))
			if err := os.MkdirAll(dir, 0o700); err != nil {
				return nil, err
			}
		}
		recording.Go(func() {
			names := strings.Join(here, ",")
			recorded, err := recordBy(ctx, dir, g.module, g.pkg, names, []string{
				"-run", "^TestRecordTorture$", "-parallel", strconv.Itoa(len(here)), "-overlay", overlay, "-trace.torture", names,
				"-trace.torture-for", t.Each.String(), "-trace.torture-seed", strconv.FormatUint(t.Seed, 10),
			}, nil)
			mu.Lock()
			defer mu.Unlock()
			maps.Copy(all, recorded)
			failed = append(failed, err)
		})
	}
	recording.Wait()
	return all, errors.Join(failed...)
}

// run holds the requests of torture runs on stores against the specification. The recordings
// stay if one of them is not as it has to be.
func (t *Torture) run(ctx context.Context, k *Checker) error {
	ctx, cancel := context.WithTimeout(ctx, tortureIn)
	defer cancel()
	k.Effort, k.Memory = decideIn, decideWith
	began := time.Now()
	wrong, err := k.holdScripts(ctx, true)
	if err != nil {
		return err
	}
	accepted, err := t.refuseFlaws(ctx, k)
	if err != nil {
		return err
	}
	stores := strings.Split(t.Stores, ",")
	if t.Stores == "all" {
		stores = tortureStores
	}
	kept := *t
	if kept.Files, err = os.MkdirTemp("", "holdfast-torture-"); err != nil {
		return err
	}
	refused, err := kept.hold(ctx, k, stores)
	if err != nil || len(refused) > 0 {
		fmt.Printf("the recordings are in %s; -recorded holds them against the specification once more\n", kept.Files)
	} else if err = os.RemoveAll(kept.Files); err != nil {
		return err
	}
	if err := errors.Join(err, asTheyHaveToBe(slices.Concat(wrong, accepted, refused))); err != nil {
		return err
	}
	fmt.Printf("%d stores are as they have to be, in %.0f s\n", len(stores), time.Since(began).Seconds())
	return nil
}

// hold records a torture of stores, and holds it against the specification.
func (t *Torture) hold(ctx context.Context, k *Checker, stores []string) (wrong []string, err error) {
	recorded, err := t.record(ctx, stores, "")
	if err != nil {
		return nil, err
	}
	return k.judgeTorture(ctx, recorded)
}

// A torture of a store with a flaw is refused in most runs of flawFor: where a driver of
// RedLock lets a ticket in that left, in two of three, else in all that were made. Those
// that are accepted are tortured anew, with another seed.
const (
	flawFor    = 8 * time.Second
	flawRounds = 8
)

// refuseFlaws tortures stores with a flaw until each is refused. It returns those that are
// accepted in every round.
func (t *Torture) refuseFlaws(ctx context.Context, k *Checker) (wrong []string, err error) {
	open := slices.Clone(tortureFlaws)
	for _, bug := range redlockBugs {
		open = append(open, bug.name)
	}
	for round := range flawRounds {
		each := Torture{Seed: t.Seed + uint64(round), Each: flawFor}
		recorded, err := each.recordFlawed(ctx, open)
		if err != nil {
			return nil, err
		}
		if wrong, err = k.judgeTorture(ctx, recorded); err != nil || len(wrong) == 0 {
			return nil, err
		}
		open = slices.DeleteFunc(open, func(name string) bool { return !slices.Contains(wrong, acceptedAll(name)) })
	}
	return wrong, nil
}

// acceptedAll says that no trace of a store with a flaw is refused.
func acceptedAll(store string) string { return store + ": all traces are accepted" }

// recordFlawed records tortures of the stores of tortureFlaws, and of the drivers with the
// mistakes of redlockBugs, that are named.
func (t *Torture) recordFlawed(ctx context.Context, names []string) (map[string][]trace.Trace, error) {
	var stores []string
	mistakes := map[string][]redlockBug{} // those that are one change
	for _, name := range names {
		i := slices.IndexFunc(redlockBugs, func(b redlockBug) bool { return b.name == name })
		if i < 0 {
			stores = append(stores, name)
			continue
		}
		bug := redlockBugs[i]
		mistakes[bug.was] = append(mistakes[bug.was], bug)
	}
	recorded := map[string][]trace.Trace{}
	if len(stores) > 0 {
		var err error
		if recorded, err = t.record(ctx, stores, ""); err != nil {
			return nil, err
		}
	}
	for _, bugs := range mistakes {
		var nodes []string
		for _, bug := range bugs {
			nodes = append(nodes, bug.nodes)
		}
		bad, err := recordChanged(ctx, bugs[0].file, bugs[0].is, bugs[0].was, func(overlay string) (map[string][]trace.Trace, error) {
			return t.record(ctx, nodes, overlay)
		})
		if err != nil {
			return nil, err
		}
		for _, bug := range bugs {
			recorded[bug.name] = bad[bug.nodes]
		}
	}
	return recorded, nil
}

// runRecorded holds files that a torture recorded, as -keep has them, against the
// specification. A store with a flaw is judged as one.
func runRecorded(ctx context.Context, k *Checker, files []string) error {
	recorded := map[string][]trace.Trace{}
	for _, file := range files {
		traces, err := readTraces(file, nil)
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		recorded[strings.TrimSuffix(filepath.Base(file), ".jsonl")] = traces
	}
	k.Effort, k.Memory = decideIn, decideWith
	wrong, err := k.judgeTorture(ctx, recorded)
	if err != nil {
		return err
	}
	return asTheyHaveToBe(wrong)
}

// asTheyHaveToBe returns an error about the traces that are not.
func asTheyHaveToBe(wrong []string) error {
	if len(wrong) > 0 {
		return fmt.Errorf("the traces are not as they have to be:\n\t%s", strings.Join(wrong, "\n\t"))
	}
	return nil
}

// judgeTorture holds the traces of stores against the specification: those of a store
// with a flaw have to be refused, and those of others accepted. It returns those that are
// not so.
func (k *Checker) judgeTorture(ctx context.Context, recorded map[string][]trace.Trace) (wrong []string, err error) {
	silent, err := k.silentActions()
	if err != nil {
		return nil, err
	}
	loose := *k
	loose.Loose = true
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
		loose.Passes, loose.Apart = passing[store], apart[store]
		loose.Unfair = strings.HasPrefix(strings.TrimPrefix(store, "cut="), "redlock")
		a, err := loose.checkTraces(ctx, "torture-"+store, parts, false)
		if err != nil {
			return nil, err
		}
		fmt.Printf("%-45s %d locks, %d traces, %d events: %d refused, %d undecided, %.0f s\n", "torture: "+store, len(recorded[store]), a.Traces, a.Events, len(a.Refused), len(a.Undecided), a.Seconds)
		if took := a.silently(silent); took != "" {
			fmt.Printf("%-45s %s\n", "torture: "+store+", accepted by silent actions", took)
		}
		if flawed {
			if len(a.Refused)+back == 0 {
				wrong = append(wrong, acceptedAll(store))
			}
			continue
		}
		for _, r := range a.Refused {
			wrong = append(wrong, store+": "+r.String())
		}
		for _, u := range a.Undecided {
			wrong = append(wrong, undecided(store, u))
		}
		if err := loose.refusesTokens(ctx, store, parts, &wrong); err != nil {
			return nil, err
		}
	}
	return wrong, nil
}

// undecided says that the check of a trace was stopped at its bound: it is neither accepted
// nor refused.
func undecided(store string, t *trace.Trace) string {
	open := 0
	for _, e := range t.Events {
		if e.Kind == trace.Join && e.Err == "outcome unknown" {
			open++
		}
	}
	return fmt.Sprintf("%s: seed %d, lock %q: not decided in %v of processor time and %d GB: %d events, from event %d of the run on, with %d Joins of unknown outcome", store, t.Seed, t.Name, decideIn, decideWith, len(t.Events), t.Events[0].Seq, open)
}

// tokensOfEach is the number of traces of a store in which a token is changed.
const tokensOfEach = 20

// refusesTokens changes a token in each of some traces of a store, as another one that
// is in the trace. Whatever is open about times and outcomes, that is refused.
func (k *Checker) refusesTokens(ctx context.Context, store string, parts []trace.Trace, wrong *[]string) error {
	rnd := rand.New(rand.NewPCG(1, 1))
	var changed []trace.Trace
	for _, i := range rnd.Perm(len(parts)) {
		if c, ok := trace.Change(rnd, &parts[i], "token"); ok && len(changed) < tokensOfEach {
			changed = append(changed, *c)
		}
	}
	a, err := k.checkTraces(ctx, "tokens-"+store, changed, false)
	if err != nil {
		return err
	}
	fmt.Printf("%-45s %d of %d refused\n", "torture: "+store+", a token changed", len(a.Refused), len(changed))
	if len(changed) == 0 || len(a.Refused) < len(changed) {
		*wrong = append(*wrong, fmt.Sprintf("%s: of %d traces in which a token was changed, %d are refused, %d undecided", store, len(changed), len(a.Refused), len(a.Undecided)))
	}
	return nil
}
