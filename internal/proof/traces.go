package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/internal/safety/trace"
)

// batchEvents bounds the events of one module: TLC reads more of them slowly.
const batchEvents = 20_000

// Accepted is the checker's word about traces.
type Accepted struct {
	Traces, Events int
	Refused        []*Refusal
	Undecided      []*trace.Trace            // their checks reached the bound, which a loose Checker has
	Taken          map[string][]*trace.Trace // the accepted traces that took a part of an action, by its name
	Seconds        float64                   // of TLC
}

func newAccepted() *Accepted {
	return &Accepted{Taken: map[string][]*trace.Trace{}}
}

// checkTraces holds traces against module Trace. An error means that they could not
// be checked, or that the checker did not look at each event.
func (k *Checker) checkTraces(ctx context.Context, name string, traces []trace.Trace, lazy bool) (*Accepted, error) {
	a := newAccepted()
	limits := map[int64][]*trace.Trace{}
	for i := range traces {
		limit, err := traces[i].Limit()
		if err != nil {
			return nil, fmt.Errorf("%s: seed %d, lock %q: %w", name, traces[i].Seed, traces[i].Name, err)
		}
		limits[limit] = append(limits[limit], &traces[i])
	}
	var (
		mu      sync.Mutex
		working sync.WaitGroup
		room    = make(chan struct{}, max(k.Jobs, 1))
		failed  error
	)
	for limit, all := range limits {
		slices.SortStableFunc(all, func(x, y *trace.Trace) int { return len(x.Events) - len(y.Events) }) // the fewer tickets a module has, the faster it is
		for n, batch := range batches(all) {
			room <- struct{}{}
			working.Go(func() {
				defer func() { <-room }()
				b, err := k.checkBatch(ctx, fmt.Sprintf("%s-%d-%d", name, trace.LimitIn(limit), n), limit, batch, lazy)
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					failed = fmt.Errorf("%s: %w", name, err)
					return
				}
				a.add(b)
			})
		}
	}
	working.Wait()
	if failed != nil {
		return nil, failed
	}
	slices.SortFunc(a.Refused, func(x, y *Refusal) int { return int(x.Trace.Seed) - int(y.Trace.Seed) })
	return a, nil
}

// add adds the checker's word about more traces.
func (a *Accepted) add(b *Accepted) {
	a.Traces, a.Events, a.Seconds = a.Traces+b.Traces, a.Events+b.Events, a.Seconds+b.Seconds
	a.Refused, a.Undecided = append(a.Refused, b.Refused...), append(a.Undecided, b.Undecided...)
	a.count(b)
}

// count adds what more accepted traces took.
func (a *Accepted) count(b *Accepted) {
	for part, traces := range b.Taken {
		a.Taken[part] = append(a.Taken[part], traces...)
	}
}

// batches cuts traces into parts of at most batchEvents events.
func batches(all []*trace.Trace) (parts [][]*trace.Trace) {
	events := batchEvents
	for _, t := range all {
		if events+len(t.Events) > batchEvents {
			parts, events = append(parts, nil), 0
		}
		parts[len(parts)-1] = append(parts[len(parts)-1], t)
		events += len(t.Events)
	}
	return parts
}

// checkBatch holds traces against module Trace. Where times and outcomes are open a view
// that leaves out the times comes first: what it accepts is accepted, and most is.
func (k *Checker) checkBatch(ctx context.Context, name string, limit int64, batch []*trace.Trace, lazy bool) (*Accepted, error) {
	if !k.Loose {
		return k.checkView(ctx, name, limit, batch, lazy, "")
	}
	a, err := k.checkView(ctx, name, limit, batch, lazy, "Rough")
	if err != nil || len(a.Refused) == 0 {
		return a, err
	}
	var again []*trace.Trace
	for _, r := range a.Refused {
		again = append(again, r.Trace)
	}
	b, err := k.checkView(ctx, name+"-again", limit, again, lazy, "View")
	if err != nil {
		return nil, err
	}
	a.count(b)
	a.Refused, a.Undecided, a.Seconds = b.Refused, append(a.Undecided, b.Undecided...), a.Seconds+b.Seconds
	return a, nil
}

func (k *Checker) checkView(ctx context.Context, name string, limit int64, batch []*trace.Trace, lazy bool, view string) (*Accepted, error) {
	var module bytes.Buffer
	if err := trace.Module(&module, "Recorded", batch); err != nil {
		return nil, err
	}
	with := *k
	with.More = map[string][]byte{"Recorded.tla": module.Bytes()}
	config := traceConfig(k, limit, lazy, view, batch)
	if k.Without != "" {
		config.Replaced = append(config.Replaced, Constant{k.Without, "Never"})
	}
	o, took, err := with.check(ctx, name, config, false)
	if err == nil && o.Verdict == Failed && ctx.Err() == nil { // see make
		o, took, err = with.check(ctx, name, config, false)
	}
	if err != nil {
		return nil, err
	}
	a := newAccepted()
	a.Seconds = took.Seconds()
	if o.Verdict == Unended && k.Loose && ctx.Err() == nil {
		return a, k.unended(ctx, a, o.Printed, name, limit, batch, lazy, view)
	}
	if o.Verdict != Holds {
		return nil, fmt.Errorf("%s %s %s", o.Verdict, o.Property, o.Reason)
	}
	refused, err := a.read(o.Printed, batch, k.Loose)
	if err != nil {
		return nil, err
	}
	// Each event that was accepted is a state, beside the first of each trace.
	want := int64(0)
	for i, t := range batch {
		a.Traces++
		a.Events += len(t.Events)
		want += int64(len(t.Events)) + 1
		if r := refused[i]; r != nil {
			want -= int64(len(t.Events) - r.At)
			a.Refused = append(a.Refused, r)
		}
	}
	if o.Distinct != want && !k.Loose {
		return nil, fmt.Errorf("%d states, and the events that were accepted make %d", o.Distinct, want)
	}
	return a, nil
}

// unended adds to a what is known of a batch whose check was stopped at its bound. A trace
// that was accepted until then is; each other one is checked alone, and undecided if that is
// stopped, too.
func (k *Checker) unended(ctx context.Context, a *Accepted, printed []string, name string, limit int64, batch []*trace.Trace, lazy bool, view string) error {
	accepted := a.readAccepted(printed, batch)
	for i, t := range batch {
		switch {
		case accepted[i]:
			a.Traces, a.Events = a.Traces+1, a.Events+len(t.Events)
		case len(batch) == 1:
			a.Traces, a.Events = a.Traces+1, a.Events+len(t.Events)
			a.Undecided = append(a.Undecided, t)
		default:
			b, err := k.checkView(ctx, fmt.Sprintf("%s-alone-%d", name, i), limit, batch[i:i+1], lazy, view)
			if err != nil {
				return err
			}
			a.add(b)
		}
	}
	return nil
}

// readAccepted returns the traces that module Trace accepts in what it has printed, and
// counts the parts of actions that they took. TLC goes breadth first: the first way that
// accepts a trace has the fewest silent actions, and the others do not count.
func (a *Accepted) readAccepted(printed []string, batch []*trace.Trace) map[int]bool {
	accepted := map[int]bool{}
	for _, line := range printed {
		m := acceptedRE.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		i := int(number(m[1])) - 1
		if accepted[i] || i >= len(batch) {
			continue
		}
		accepted[i] = true
		for _, part := range strings.Split(m[2], ", ") {
			part = strings.Trim(part, `" `)
			a.Taken[part] = append(a.Taken[part], batch[i])
		}
	}
	return accepted
}

// traceConfig is the world of a lock's traces.
func traceConfig(k *Checker, limit int64, lazy bool, view string, traces []*trace.Trace) *Config {
	truth := func(is bool) string { return strings.ToUpper(strconv.FormatBool(is)) }
	grain, forget := 0, int64(0)
	if k.Loose {
		grain = trace.UnitsGrain
	}
	for _, t := range traces {
		if t.Lasts() > trace.ForgetAfter {
			forget = int64(trace.ForgetAfter / time.Millisecond)
		}
	}
	return &Config{
		Name: "Recorded", Spec: "Spec", View: view,
		Constants: []Constant{
			{"Writers", "{}"}, {"Owned", "{}"}, {"Limit", strconv.FormatInt(trace.LimitIn(limit), 10)},
			{"Keep", strconv.Itoa(trace.UnitsKeep)}, {"TTL", strconv.Itoa(trace.UnitsTTL)},
			{"Lazy", truth(lazy)}, {"Loose", truth(k.Loose)}, {"Fair", truth(!k.Unfair)}, {"Apart", truth(k.Apart)},
			{"Passes", truth(k.Passes)}, {"Grain", strconv.Itoa(grain)}, {"Forget", strconv.FormatInt(forget, 10)}, {"Bug", `"none"`},
		},
		Replaced: []Constant{
			{"Traces", "Recorded"}, {"Tickets", "RecordedTickets"}, {"Clients", "RecordedClients"},
			{"Trying", "TryingHere"}, {"Units", "Sum"}, {"Advance", "Serve"},
			{"OneOwner", "OneOwnerHere"}, {"Fits", "PlaceFits"}, {"Grant", "PlaceGrant"}, {"Enter", "PlaceEnter"}, {"Kept", "KeptHere"},
		},
		Invariants: []string{"StoreLimit", "TryLeavesNothing"},
	}
}

var (
	refusedRE  = regexp.MustCompile(`^<<"REFUSED", (\d+), (\d+), "([^"]*)", (.*)>>$`)
	acceptedRE = regexp.MustCompile(`^<<"ACCEPTED", (\d+), \{([^{}]*)\}>>$`)
)

// read reads what module Trace has printed: that it accepts a trace, or one refusal.
// Where it is loose there may be several ways through a trace: one that accepts it
// counts, or else the refusal that comes last in the trace.
func (a *Accepted) read(printed []string, batch []*trace.Trace, loose bool) (map[int]*Refusal, error) {
	refused, accepted := map[int]*Refusal{}, a.readAccepted(printed, batch)
	for _, line := range printed {
		if acceptedRE.MatchString(line) {
			continue
		}
		m := refusedRE.FindStringSubmatch(line)
		if m == nil {
			return nil, fmt.Errorf("TLC printed %q", line)
		}
		i, at := int(number(m[1]))-1, int(number(m[2]))-1
		if i < 0 || i >= len(batch) || at < 0 || at >= len(batch[i].Events) {
			return nil, fmt.Errorf("TLC refuses event %d of trace %d, which is not there", at+1, i+1)
		}
		values := elements(m[4])
		if len(values) != 4 {
			return nil, fmt.Errorf("TLC printed %q", line)
		}
		if r := refused[i]; loose && r != nil && r.At >= at {
			continue
		}
		refused[i] = &Refusal{Trace: batch[i], At: at, What: m[3], Spec: values[0], Code: values[1], Queue: values[2], Token: values[3]}
	}
	for i, t := range batch {
		if loose && accepted[i] {
			delete(refused, i)
		}
		if accepted[i] == (refused[i] != nil) {
			return nil, fmt.Errorf("seed %d, lock %q: accepted is %v, and a refusal: %v", t.Seed, t.Name, accepted[i], refused[i])
		}
	}
	return refused, nil
}

// elements cuts a list of values at its commas, but for those inside of a value.
func elements(s string) (all []string) {
	depth, quoted, begin := 0, false, 0
	for i, c := range s {
		switch {
		case c == '"':
			quoted = !quoted
		case quoted:
		case strings.ContainsRune("<[{(", c):
			depth++
		case strings.ContainsRune(">]})", c) && depth > 0 && !(c == '>' && i > 0 && (s[i-1] == '-' || s[i-1] == ':' || s[i-1] == '|')):
			depth--
		case c == ',' && depth == 0:
			all = append(all, strings.TrimSpace(s[begin:i]))
			begin = i + 1
		}
	}
	return append(all, strings.TrimSpace(s[begin:]))
}

// record plays schedules on stores, NAME or NAME@SEED, and returns their traces by the name of
// the store. The first schedule is that of a store's own seed, or of first. With an overlay the
// build replaces files, as go build has it.
func record(ctx context.Context, sources string, first, schedules int, overlay string) (map[string][]trace.Trace, error) {
	args := []string{"-run", "^TestRecord$"}
	if overlay != "" {
		args = append(args, "-overlay", overlay)
	}
	args = append(args, "-trace.sources", sources, "-trace.seed", strconv.Itoa(first), "-trace.schedules", strconv.Itoa(schedules))
	return recordBy(ctx, "", ".", "./internal/safety/trace", sources, args, func(name string, runs [][]trace.Event) error {
		return whole(runs, seedOf(sources, name, first), schedules)
	})
}

// seedOf returns the first seed of a store among sources, as record has them.
func seedOf(sources, store string, first int) int {
	for source := range strings.SplitSeq(sources, ",") {
		if name, seed, own := strings.Cut(source, "@"); own && name == store {
			if n, err := strconv.Atoi(seed); err == nil {
				return n
			}
		}
	}
	return first
}

// recordBy runs a test that writes traces, of a package of the module in a folder, and
// returns them by the name of the store. Their files stay in the folder dir, if that has a
// name. The function whole, unless it is nil, looks at the runs of each store.
func recordBy(ctx context.Context, dir, module, pkg, sources string, args []string, whole func(store string, runs [][]trace.Event) error) (map[string][]trace.Trace, error) {
	if dir == "" {
		var err error
		if dir, err = os.MkdirTemp("", "holdfast-traces-"); err != nil {
			return nil, err
		}
		defer os.RemoveAll(dir)
	}
	args = append(append([]string{"test", "-C", module, "-vet=off", "-ldflags=-w", pkg, "-count", "1", "-timeout", "30m"}, args...), "-trace.out", dir)
	if text, err := exec.CommandContext(ctx, "go", args...).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("recording %s: %w\n%s", sources, err, text)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.jsonl"))
	if err != nil || len(files) == 0 {
		return nil, fmt.Errorf("recording %s wrote %d files: %w", sources, len(files), err)
	}
	all := map[string][]trace.Trace{}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".jsonl")
		check := func(runs [][]trace.Event) error { return nil }
		if whole != nil {
			check = func(runs [][]trace.Event) error { return whole(name, runs) }
		}
		if all[name], err = readTraces(file, check); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return all, nil
}

// whole returns an error unless runs are those of the schedules from first on, each to
// its end, at which every client is closed.
func whole(runs [][]trace.Event, first, schedules int) error {
	if len(runs) != schedules {
		return fmt.Errorf("%d runs of %d schedules were recorded", len(runs), schedules)
	}
	for i, run := range runs {
		if want := uint64(first + i); run[0].Seed != want {
			return fmt.Errorf("a run of seed %d is where that of seed %d should be", run[0].Seed, want)
		}
		open := map[int]bool{}
		for _, e := range run {
			if e.Kind == trace.Close {
				open[e.Client] = false
			} else if _, known := open[e.Client]; !known && e.Client > 0 {
				open[e.Client] = true
			}
		}
		for client, left := range open {
			if left {
				return fmt.Errorf("seed %d: client %d is not closed: the record was cut short", run[0].Seed, client)
			}
		}
	}
	return nil
}

// inOrder returns an error unless the events of a run have the recorder's numbers, one
// after the other.
func inOrder(run []trace.Event) error {
	for i, e := range run {
		if e.Seq != int64(i+1) || e.Seed != run[0].Seed {
			return fmt.Errorf("seed %d: event %d of seed %d is where event %d should be", run[0].Seed, e.Seq, e.Seed, i+1)
		}
	}
	return nil
}

// readTraces reads the file of a store. A file without an event, or whose events are not
// in the recorder's order, is an error; for whole see recordBy.
func readTraces(file string, whole func([][]trace.Event) error) (traces []trace.Trace, err error) {
	f, err := os.Open(filepath.Clean(file))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	events, err := trace.Read(f)
	if err != nil {
		return nil, err
	}
	runs := trace.Runs(events)
	if len(runs) == 0 {
		return nil, errors.New("no event was recorded")
	}
	if whole != nil {
		if err := whole(runs); err != nil {
			return nil, err
		}
	}
	for _, run := range runs {
		if err := inOrder(run); err != nil {
			return nil, err
		}
		t, err := trace.Split(run)
		if err != nil {
			return nil, fmt.Errorf("seed %d: %w", run[0].Seed, err)
		}
		traces = append(traces, t...)
	}
	if len(traces) == 0 {
		return nil, errors.New("no event is about a lock")
	}
	return traces, nil
}

// partRE matches the name of a part of an action, by which module Trace takes an event.
var partRE = regexp.MustCompile(`"([A-Z][a-z][A-Za-z]+)"`)

// takenParts returns the names of the parts of actions of module Trace, by which it takes
// events.
func takenParts(file string) ([]string, error) {
	text, err := os.ReadFile(filepath.Clean(file))
	if err != nil {
		return nil, err
	}
	parts := map[string]bool{}
	for _, m := range partRE.FindAllStringSubmatch(string(text), -1) {
		parts[m[1]] = true
	}
	silent, err := silentActions(string(text))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	for _, action := range silent {
		delete(parts, action)
	}
	if len(parts) == 0 {
		return nil, fmt.Errorf("%s has no parts of actions", file)
	}
	return slices.Sorted(maps.Keys(parts)), nil
}

// silentRE matches the actions of module Trace beside Next.
var silentRE = regexp.MustCompile(`\nSpec == Init /\\ \[\]\[Next((?: \\/ [A-Z]\w+)+)\]_vars\n`)

// silentActions returns the names of the actions of module Trace that take no event: what a
// store may have done unseen. Each is needed by a script, see needsSilent.
func silentActions(module string) ([]string, error) {
	m := silentRE.FindStringSubmatch(module)
	if m == nil {
		return nil, errors.New("its Spec has no silent actions beside Next")
	}
	return strings.Split(strings.TrimPrefix(m[1], ` \/ `), ` \/ `), nil
}

// silentActions returns those of the module that k checks.
func (k *Checker) silentActions() ([]string, error) {
	text, err := os.ReadFile(filepath.Join(k.Modules, "Trace.tla"))
	if err != nil {
		return nil, err
	}
	return silentActions(string(text))
}

// silently says how many accepted traces took each silent action.
func (a *Accepted) silently(silent []string) string {
	var took []string
	for _, action := range silent {
		if n := len(a.Taken[action]); n > 0 {
			took = append(took, fmt.Sprintf("%s %d", action, n))
		}
	}
	return strings.Join(took, ", ")
}
