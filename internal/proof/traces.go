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

	"github.com/holdfast-go/holdfast/internal/safety/trace"
)

// batchEvents bounds the events of one module: TLC reads more of them slowly.
const batchEvents = 20_000

// Refusal is an event that module Trace cannot take.
type Refusal struct {
	Trace *trace.Trace
	At    int    // index of the event
	What  string // the part that differs
	Spec  string // as the specification has it
	Code  string // as the trace has it
	Queue string // the queue before the event, as the specification has it
	Token string // the tokens of its tickets, of which those that wait have 0
}

// String tells the refusal with the ten events before it.
func (r *Refusal) String() string {
	var b strings.Builder
	e := &r.Trace.Events[r.At]
	fmt.Fprintf(&b, "seed %d, lock %q: event %d, %s, is refused: %s\n   the queue before it, as the specification has it: %s\n",
		r.Trace.Seed, r.Trace.Name, r.At+1, strings.TrimSpace(fmt.Sprintf("%s of %s", e.Kind, e.ID)), r.why(), r.queue())
	for i := max(0, r.At-10); i <= r.At; i++ {
		mark := "   "
		if i == r.At {
			mark = " > "
		}
		fmt.Fprintf(&b, "%s%v\n", mark, r.Trace.Events[i])
	}
	return b.String()
}

// conjuncts says in words what a part of module Trace asks of an event, by the name that
// it prints.
var conjuncts = map[string]string{
	"HoldDone of a hold that has ended": "HoldDone comes after the user unlocks, or with a loss",
	"LockDone came before":              "the Observer was told LockDone of the hold, at this client",
	"a grant that the client knows":     "an answer that the client heard, or a push, called its ticket held with this token, and it has not left",
	"a hold that is new":                "a call returns a hold once",
	"a hold that was got":               "a call returned the hold, and it has not ended before",
	"a loss is told":                    "each hold ends before the claim of its ticket, counted from the sending of a request, or as the client hears that the ticket is gone",
	"a loss is told first":              "the context of a lost hold ends before the user unlocks it",
	"alone with its ticket":             "no other hold of the ticket is open, but for readers",
	"each hold has ended":               "at the end the user has unlocked each hold, and HoldDone was told of it",
	"holds are numbered":                "the holds have the order of their LockDone",
	"its claim lasts":                   "the claim of the ticket, counted from the sending of a request, is not over",
	"its holds have ended":              "a client gives up a ticket after its holds have ended",
	"lost":                              "a hold is told of a loss",
	"one HoldDone of a hold":            "HoldDone comes once",
	"others have ended":                 "the holds of others that leave no room have ended, or were told of their loss",
	"the token of the hold":             "the events of a hold have one token",
	"tokens grow":                       "the token of a hold that excludes others is greater than each before",
	"Join of a ticket that left":        "no Join follows a Leave that was certain (Join 2)",
	"ahead":                             "Ahead is the number of places before it",
	"an upgrade":                        "only a ticket that asks for more units than its owner's place has is refused (Join 7)",
	"client is open":                    "a client that was closed is answered nothing but errors",
	"error":                             "the request is answered without an error",
	"granted":                           "the ticket was granted in a turn of its own, and the view has it so",
	"its own ticket":                    "a push, or a hold, is about a ticket of the client that has it (Watch 1)",
	"it has no place":                   "a ticket that a push calls gone has no place",
	"lease":                             "this answer has no lease",
	"lease as long as the TTL":          "the lease is at least the TTL (Join 9)",
	"lease kept by the store":           "the lease is not longer than the store keeps the place (Join 9)",
	"left":                              "the view says how long the place is kept",
	"listed":                            "the name is listed while its queue has a ticket (Names 1)",
	"no upgrade":                        "a ticket that asks for more units than its owner's place has is refused (Join 7)",
	"queue":                             "the view has the tickets in the order of the queue",
	"refused for certain":               "an error of this class says that the request was not carried out",
	"state":                             "the state of the ticket",
	"the client watches":                "a push goes to a client that subscribed",
	"there is no such ticket":           "Break says that there is no ticket only where there is none (Break 1)",
	"there is such a ticket":            "Break is done where the ticket has a place (Break 1)",
	"token":                             "a ticket that does not hold has no token",
	"token in order":                    "tokens are in the order of the grants, and a grant keeps its token (Join 5)",
	"token not below the floor":         "the token is not below the lowest that the ticket accepts",
	"tokens in order":                   "the tokens of the view are in the order of the grants",
	"traits":                            "the traits stay as they were (Traits 1)",
}

// why says what the specification asks of the event, and what the trace has.
func (r *Refusal) why() string {
	asks := conjuncts[r.What]
	if r.Spec == "TRUE" && r.Code == "FALSE" {
		return fmt.Sprintf("%s: this does not hold: %s", r.What, asks)
	}
	return fmt.Sprintf("%s: the specification has %s, the trace %s: %s", r.What, r.Spec, r.Code, asks)
}

var (
	numberRE = regexp.MustCompile(`\d+`)
	tokenRE  = regexp.MustCompile(`(\d+) :> (\d+)`)
)

// queue tells the queue in words: the ids of its tickets, and what each does there.
func (r *Refusal) queue() string {
	ids, err := r.Trace.Tickets()
	if err != nil {
		return r.Queue
	}
	tokens := map[string]string{}
	for _, m := range tokenRE.FindAllStringSubmatch(r.Token, -1) {
		tokens[m[1]] = m[2]
	}
	var all []string
	for _, n := range numberRE.FindAllString(r.Queue, -1) {
		does := "waits"
		if tokens[n] != "" && tokens[n] != "0" {
			does = "holds with grant " + tokens[n]
		}
		all = append(all, ids[int(number(n))]+" "+does)
	}
	if len(all) == 0 {
		return "nobody"
	}
	return strings.Join(all, ", ")
}

// Accepted is the checker's word about traces.
type Accepted struct {
	Traces, Events int
	Refused        []*Refusal
	Taken          map[string]int // accepted traces that took a part of an action
	Seconds        float64        // of TLC
}

// checkTraces holds traces against module Trace. An error means that they could not
// be checked, or that the checker did not look at each event.
func (k *Checker) checkTraces(ctx context.Context, name string, traces []trace.Trace, lazy bool) (*Accepted, error) {
	a := &Accepted{Taken: map[string]int{}}
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
	a.Refused = append(a.Refused, b.Refused...)
	for part, n := range b.Taken {
		a.Taken[part] += n
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
	a.Refused, a.Seconds = b.Refused, a.Seconds+b.Seconds
	return a, nil
}

func (k *Checker) checkView(ctx context.Context, name string, limit int64, batch []*trace.Trace, lazy bool, view string) (*Accepted, error) {
	var module bytes.Buffer
	if err := trace.Module(&module, "Recorded", batch); err != nil {
		return nil, err
	}
	with := *k
	with.More = map[string][]byte{"Recorded.tla": module.Bytes()}
	o, took, err := with.check(ctx, name, traceConfig(limit, lazy, k.Loose, !k.Unfair, k.Passes, view), false)
	if err != nil {
		return nil, err
	}
	if o.Verdict != Holds {
		return nil, fmt.Errorf("%s %s %s", o.Verdict, o.Property, o.Reason)
	}
	a := &Accepted{Taken: map[string]int{}, Seconds: took.Seconds()}
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

// traceConfig is the world of a lock's traces.
func traceConfig(limit int64, lazy, loose, fair, passes bool, view string) *Config {
	grain := 0
	if loose {
		grain = trace.UnitsGrain
	}
	return &Config{
		Name: "Recorded", Spec: "Spec", View: view,
		Constants: []Constant{
			{"Writers", "{}"}, {"Owned", "{}"}, {"Limit", strconv.FormatInt(trace.LimitIn(limit), 10)},
			{"Keep", strconv.Itoa(trace.UnitsKeep)}, {"TTL", strconv.Itoa(trace.UnitsTTL)},
			{"Lazy", strings.ToUpper(strconv.FormatBool(lazy))}, {"Loose", strings.ToUpper(strconv.FormatBool(loose))}, {"Fair", strings.ToUpper(strconv.FormatBool(fair))},
			{"Passes", strings.ToUpper(strconv.FormatBool(passes))}, {"Grain", strconv.Itoa(grain)}, {"Forget", strconv.FormatInt(trace.ForgetAfter, 10)}, {"Bug", `"none"`},
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
	refused, accepted := map[int]*Refusal{}, map[int]bool{}
	for _, line := range printed {
		if m := acceptedRE.FindStringSubmatch(line); m != nil {
			accepted[int(number(m[1]))-1] = true
			for _, part := range strings.Split(m[2], ", ") {
				a.Taken[strings.Trim(part, `" `)]++
			}
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

// record plays schedules on stores and returns their traces, by the name of the
// store. With an overlay the build replaces files, as go build has it.
func record(ctx context.Context, sources string, first, schedules int, overlay string) (map[string][]trace.Trace, error) {
	args := []string{"-run", "^TestRecord$"}
	if overlay != "" {
		args = append(args, "-overlay", overlay)
	}
	args = append(args, "-trace.sources", sources, "-trace.seed", strconv.Itoa(first), "-trace.schedules", strconv.Itoa(schedules))
	return recordBy(ctx, ".", "./internal/safety/trace", sources, args, func(runs [][]trace.Event) error { return whole(runs, first, schedules) })
}

// recordBy runs a test that writes traces, of a package of the module in a folder, and
// returns them by the name of the store. The function whole, unless it is nil, looks at the
// runs of each store.
func recordBy(ctx context.Context, module, pkg, sources string, args []string, whole func([][]trace.Event) error) (map[string][]trace.Trace, error) {
	dir, err := os.MkdirTemp("", "holdfast-traces-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
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
		if all[name], err = readTraces(file, whole); err != nil {
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

// takenParts returns the names of the parts of actions of module Trace.
func takenParts(file string) ([]string, error) {
	text, err := os.ReadFile(filepath.Clean(file))
	if err != nil {
		return nil, err
	}
	parts := map[string]bool{}
	for _, m := range partRE.FindAllStringSubmatch(string(text), -1) {
		parts[m[1]] = true
	}
	if len(parts) == 0 {
		return nil, fmt.Errorf("%s has no parts of actions", file)
	}
	return slices.Sorted(maps.Keys(parts)), nil
}
