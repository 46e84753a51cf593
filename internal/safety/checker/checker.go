package checker

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// Rules are the promises that a Checker judges, and the tolerances.
type Rules struct {
	TTL time.Duration
	// Fair means that the store promises order (C4).
	Fair bool
	// Tokens means that the store promises tokens (C2, C3).
	Tokens bool
	// Contagious means that a stopped process may stop the store for all
	// others. C4 judges no wait during such a stop.
	Contagious bool
	// Slack is added to all promised times; see Late.
	Slack time.Duration
	// Takes is the longest time that a fresh process may wait for a name after
	// the last heal (C7), without Slack.
	Takes time.Duration
	// Exposed names checks whose findings are counted, and are no violations,
	// because the faults go beyond what the lock promises to survive. A valid
	// hold that the register refuses then counts with C1.
	Exposed []string
}

// Late is the longest time from the end of a claim to the report of its loss.
// Slack is added, and the time in which the process did not run.
const Late = 100 * time.Millisecond

// Violation is a broken promise.
type Violation struct {
	Check string // "C1" to "C10"
	Name  string // of the lock
	Text  string // the violation in words
	Ops   []*Op  // the calls concerned
	At    int64
}

// Stats counts the events that were judged.
type Stats struct {
	Calls, Grants, Released  int64
	Timeouts, Busy, Unknown  int64 // waits that ended, tries that found the lock held, calls of killed processes
	Errors                   int64 // other errors of the store
	Lost                     int64 // holds whose loss was reported
	Overlaps                 int64
	LongestOverlap           time.Duration
	Exposed                  map[string]int64 // findings that are no violations, by check
	LongestWait, LongestHold time.Duration
	Writes, Stale            int64 // accesses to the register: accepted writes, and accesses refused by its guard
	Slices, Undecided        int64 // of C5
	Ordered                  int64 // waits judged by C4
	Faults                   map[string]int64
}

// Checker judges events. It is not safe for concurrent use.
type Checker struct {
	rules Rules
	stats Stats
	zero  int64 // the time of the first event

	lastEvent    map[life]int64 // the time of the last event of each live process
	open         map[Key]*Op
	records      map[string]*lockRecord
	disturbances disturbances
	told         map[lossKey]*loss
	killed       map[life]bool
	violations   violations
}

// lockRecord is the record of one name.
type lockRecord struct {
	name    string
	live    []*Op // granted, and not retired
	old     []*Op // retired by earlier windows; C4 needs them
	ended   []*Op // retired, to be judged by C5
	unknown []*Op // of killed processes, for C5
	floors  []tokenBound
	cell    regCell
}

// maxViolations is the length of the list for each check. A broken promise is
// usually broken often.
const maxViolations = 8

// NewChecker returns a Checker with the rules r.
func NewChecker(r Rules) *Checker {
	c := &Checker{
		rules: r, lastEvent: make(map[life]int64), open: make(map[Key]*Op), records: make(map[string]*lockRecord),
		disturbances: make(disturbances), told: make(map[lossKey]*loss), killed: make(map[life]bool),
		stats: Stats{Faults: make(map[string]int64), Exposed: make(map[string]int64)},
	}
	c.violations = violations{exposed: r.Exposed, counts: c.stats.Exposed, seen: make(map[string]bool), listed: make(map[string]int)}
	return c
}

func (c *Checker) recordOf(name string) *lockRecord {
	l := c.records[name]
	if l == nil {
		l = &lockRecord{name: name}
		c.records[name] = l
	}
	return l
}

// Add adds one event. The events of one process must come in the order of their
// times; between processes no order is required.
func (c *Checker) Add(e Event) {
	if c.zero == 0 {
		c.zero = e.T
	}
	lf, key := life{e.P, e.K}, Key{e.P, e.K, e.N}
	switch e.What {
	case Fault, Heal, Probe, Stuck, Residue, Read, Write, Gone:
	default:
		c.lastEvent[lf] = e.T
	}
	switch e.What {
	case Ask:
		c.stats.Calls++
		c.open[key] = &Op{Key: key, G: e.G, Name: e.Name, Units: e.Units, Limit: e.Limit,
			In: e.In, Try: e.Try, Bound: e.Bound, Alone: e.Alone, Asked: e.T}
	case Pulse:
		if e.Gap > 0 {
			c.disturbances.add(e.P, "stall", e.T-e.Gap, e.T)
		}
	case Upset:
		c.disturbances.add(e.P, "trouble", e.T, e.T)
	case Notice:
		c.lossOf(lossKey{lf, e.Name, e.Token}).notices++
	case Fault:
		c.stats.Faults[e.Text]++
		c.disturbances.add(e.P, e.Text, e.T, math.MaxInt64)
	case Heal:
		c.disturbances.end(e.P, e.Text, e.T)
	case Gone:
		c.endProcess(lf, e.T, e.Text == "killed")
	case Probe, Stuck, Residue:
		c.addFinalCheck(e)
	default:
		if op := c.open[key]; op != nil { // an event after the end of a hold adds nothing
			c.step(op, e)
		}
	}
}

// step applies an event to a call under way.
func (c *Checker) step(op *Op, e Event) {
	switch e.What {
	case Wait:
		op.Waiting = e.T
	case Got:
		op.Granted, op.Token, op.Claim = e.T, e.Token, e.End
		c.stats.Grants++
		c.stats.LongestWait = max(c.stats.LongestWait, time.Duration(e.T-op.Asked))
		l := c.recordOf(op.Name)
		l.live = append(l.live, op)
	case Failed:
		c.checkFailure(op, e.Err, e.Text)
		delete(c.open, op.Key)
	case Still:
		op.Claim = max(op.Claim, e.End)
	case Told:
		op.Told, op.ToldToken, op.ToldWhy = e.T, e.Token, e.Text
		op.Claim = max(op.Claim, min(e.End, e.T))
		if op.In == 0 { // the observer is notified once, of the outer hold
			c.lossOf(lossKey{op.life(), op.Name, op.Token}).told++
			c.stats.Lost++
		}
	case Stop:
		op.Stopped = e.T
	case Out:
		op.Out, op.OutErr = e.T, e.Err
		op.Claim = max(op.Claim, e.End)
		c.stats.LongestHold = max(c.stats.LongestHold, time.Duration(e.T-op.Granted))
	case Done:
		op.Done, op.DoneErr = e.T, e.Err
		if e.Err == "" {
			c.stats.Released++
		}
		if e.Err == ErrLost && op.Told == 0 && op.In == 0 { // only the release found the loss
			c.lossOf(lossKey{op.life(), op.Name, op.Token}).told++
			c.stats.Lost++
		}
		c.checkUnlockError(op, e.Text)
		delete(c.open, op.Key)
	case Read, Write:
		c.checkRegister(op, e)
	}
}

// endProcess ends the calls of a process.
func (c *Checker) endProcess(lf life, t int64, killed bool) {
	delete(c.lastEvent, lf)
	if killed {
		c.killed[lf] = true
	}
	for key, op := range c.open {
		if key.life() != lf {
			continue
		}
		op.Killed = t
		c.stats.Unknown++
		if op.Granted == 0 && op.In == 0 {
			l := c.recordOf(op.Name)
			l.unknown = append(l.unknown, op)
		}
		delete(c.open, key)
	}
}

// addFinalCheck judges the events after all faults.
func (c *Checker) addFinalCheck(e Event) {
	switch {
	case e.What == Residue:
		c.violations.add("C8", e.Name, e.T, "the store still has "+e.Text)
	case e.What == Stuck:
		c.violations.add("C7", e.Name, e.T, e.Text)
	case e.Err != "":
		c.violations.add("C7", e.Name, e.T, "a fresh process did not get it: "+e.Err+" "+e.Text)
	case time.Duration(e.Gap) > c.rules.Takes+c.rules.Slack:
		c.violations.add("C7", e.Name, e.T, fmt.Sprintf("a fresh process got it after %v; the most is %v and %v of slack",
			time.Duration(e.Gap), c.rules.Takes, c.rules.Slack))
	}
}

// violations are the broken promises that were found.
type violations struct {
	exposed []string         // Rules.Exposed
	counts  map[string]int64 // Stats.Exposed
	list    []Violation
	dropped int
	listed  map[string]int // violations, by check
	seen    map[string]bool
}

// add records a violation, and reports whether it is new.
func (v *violations) add(check, name string, at int64, text string, ops ...*Op) bool {
	id := check + name + text
	for _, op := range ops {
		id += fmt.Sprint(op.Key)
	}
	if len(ops) > 0 {
		id = check + id[len(check)+len(name)+len(text):]
	}
	switch {
	case v.seen[id]:
		return false
	case slices.Contains(v.exposed, check):
		v.counts[check]++
	case v.listed[check] == maxViolations:
		v.dropped++
		return true
	default:
		v.listed[check]++
		copies := make([]*Op, len(ops))
		for i, op := range ops {
			copies[i] = new(*op)
		}
		v.list = append(v.list, Violation{check, name, text, copies, at})
	}
	v.seen[id] = true
	return true
}

// horizon returns the time up to which all events are known.
func (c *Checker) horizon() int64 {
	t := Now()
	for _, heard := range c.lastEvent {
		t = min(t, heard)
	}
	return t
}

// Check judges all that is known by now, and forgets what no longer matters.
// Call it from time to time; Finish judges the rest.
func (c *Checker) Check() { c.judge(c.horizon()) }

func (c *Checker) judge(t int64) {
	// Floors are needed from the oldest call that may still be granted.
	oldest := t
	for _, op := range c.open {
		if op.Granted == 0 {
			oldest = min(oldest, op.Asked)
		}
	}
	for _, l := range c.records {
		c.checkExclusion(l, t)
		c.checkFunctionExclusion(l, t)
		c.checkTokens(l, t, oldest)
		c.checkOrder(l)
		c.retire(l, t)
		if len(l.ended) >= sliceSize {
			c.checkLinear(l)
		}
	}
}

// retire removes the calls that ended before t from the window.
func (c *Checker) retire(l *lockRecord, t int64) {
	var live, old []*Op
	for _, op := range l.live {
		if !op.final() || max(op.until(), op.functionEnd()) > t || !op.ordered {
			live = append(live, op)
			continue
		}
		old = append(old, op)
		c.checkLoss(op)
		l.ended = append(l.ended, op)
	}
	if l.live = live; len(old) > 0 {
		l.old = append(l.old[max(0, len(l.old)-maxOld):], old...)
	}
}

// maxOld is the number of calls of earlier windows that C4 remembers.
const maxOld = 500

// Finish judges the rest. No process may be alive any more.
func (c *Checker) Finish() {
	clear(c.lastEvent)
	c.judge(math.MaxInt64 - 1)
	for _, l := range c.records {
		c.checkLinear(l)
	}
	c.checkLossReports()
	if c.stats.Undecided > 1 && c.stats.Undecided*100 > c.stats.Slices { // a single one shows only that the machine was busy
		c.violations.add("C5", "", Now(), fmt.Sprintf("%d of %d slices could not be decided in time", c.stats.Undecided, c.stats.Slices))
	}
}

// Violations returns the broken promises so far, at most 8 for each check, and
// the number of further ones.
func (c *Checker) Violations() ([]Violation, int) { return c.violations.list, c.violations.dropped }

// Stats returns the counts so far. Its maps are the Checker's own.
func (c *Checker) Stats() Stats { return c.stats }

// Describe returns a violation as text for people, with its calls side by side
// and times in seconds since the first event.
func (c *Checker) Describe(v Violation) string {
	return fmt.Sprintf("%s %s at %.6f: %s\n%s", v.Check, v.Name, time.Duration(v.At-c.zero).Seconds(), v.Text, sideBySide(c.zero, v.Ops))
}
