package check

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// Rules say what is judged, and how strictly.
type Rules struct {
	TTL time.Duration
	// Fair: the store promises order (C4).
	Fair bool
	// Tokens: the store promises them (C2, C3).
	Tokens bool
	// Contagious: a process that is stopped may stop the store for all others,
	// so nobody's place is judged while one is.
	Contagious bool
	// Slack is added to the times that are promised; see Late.
	Slack time.Duration
	// Takes is how long a fresh process may wait for a name after the last
	// heal (C7), without Slack.
	Takes time.Duration
	// Exposed names checks whose findings are counted and no violations: what
	// is done to the store goes beyond what the lock promises to survive. A
	// valid hold that the register refuses then counts with C1.
	Exposed []string
}

// Late is how long after the end of a claim its loss may be told, besides
// Slack and the time in which the process did not run.
const Late = 100 * time.Millisecond

// Violation is a broken promise.
type Violation struct {
	Check string // "C1" to "C9"
	Name  string // of the lock
	Text  string // what is wrong
	Ops   []*Op  // the calls concerned
	At    int64
}

// Stats counts what was judged.
type Stats struct {
	Calls, Grants, Released  int64
	Timeouts, Busy, Unknown  int64 // waits that ended, tries that found it held, calls of killed processes
	Errors                   int64 // other errors of the store
	Lost                     int64 // holds whose loss was told
	Overlaps                 int64
	LongestOverlap           time.Duration
	Exposed                  map[string]int64 // findings that are no violations, by check
	LongestWait, LongestHold time.Duration
	Writes, Stale            int64 // to the register: accepted, and refused by its guard
	Slices, Undecided        int64 // of C5
	Ordered                  int64 // waits judged by C4
	Faults                   map[string]int64
}

// Checker takes events and judges them. It is not safe for concurrent use.
type Checker struct {
	rules Rules
	stats Stats
	zero  int64 // the first event's time

	heard   map[life]int64 // the time of the last event of each process that lives
	open    map[Key]*Op
	lines   map[string]*line
	upsets  map[int][]upset // by process
	told    map[lossKey]*loss
	killed  map[life]bool
	bad     []Violation
	dropped int
	listed  map[string]int // violations, by check
	seen    map[string]bool
}

// line is a name.
type line struct {
	name    string
	live    []*Op // granted, and not retired
	old     []*Op // retired by the last window; C4 needs them
	ended   []*Op // retired, to be judged by C5
	unknown []*Op // of killed processes, for C5
	floors  []floor
	cell    regCell
}

// upset is a time in which a process was not as it should be.
type upset struct {
	kind     string
	from, to int64
}

// maxViolations bounds the list for each check; what is broken once is broken
// often.
const maxViolations = 8

// NewChecker returns a Checker with these rules.
func NewChecker(r Rules) *Checker {
	return &Checker{
		rules: r, heard: make(map[life]int64), open: make(map[Key]*Op), lines: make(map[string]*line),
		upsets: make(map[int][]upset), told: make(map[lossKey]*loss), killed: make(map[life]bool),
		seen: make(map[string]bool), listed: make(map[string]int),
		stats: Stats{Faults: make(map[string]int64), Exposed: make(map[string]int64)},
	}
}

func (c *Checker) line(name string) *line {
	l := c.lines[name]
	if l == nil {
		l = &line{name: name}
		c.lines[name] = l
	}
	return l
}

// Add takes one event. The events of one process come in the order of their
// times; between processes there is no order.
func (c *Checker) Add(e Event) {
	if c.zero == 0 {
		c.zero = e.T
	}
	lf, key := life{e.P, e.K}, Key{e.P, e.K, e.N}
	switch e.What {
	case Fault, Heal, Probe, Stuck, Residue, Read, Write, Gone:
	default:
		c.heard[lf] = e.T
	}
	op := c.open[key]
	switch e.What {
	case Ask:
		c.stats.Calls++
		c.open[key] = &Op{Key: key, G: e.G, Name: e.Name, Units: e.Units, Limit: e.Limit,
			In: e.In, Try: e.Try, Bound: e.Bound, Alone: e.Alone, Asked: e.T}
		return
	case Pulse:
		if e.Gap > 0 {
			c.upsets[e.P] = append(c.upsets[e.P], upset{"stall", e.T - e.Gap, e.T})
		}
		return
	case Upset:
		c.upsets[e.P] = append(c.upsets[e.P], upset{"trouble", e.T, e.T})
		return
	case Notice:
		c.lossOf(lossKey{lf, e.Name, e.Token}).notices++
		return
	case Fault, Heal:
		c.fault(e)
		return
	case Gone:
		c.gone(lf, e.T, e.Text == "killed")
		return
	case Probe, Stuck, Residue:
		c.after(e)
		return
	}
	if op == nil {
		return // what comes after the end of a hold tells nothing new
	}
	c.step(op, e)
}

// step takes an event of a call under way.
func (c *Checker) step(op *Op, e Event) {
	switch e.What {
	case Wait:
		op.Waiting = e.T
	case Got:
		op.Granted, op.Token, op.Claim = e.T, e.Token, e.End
		c.stats.Grants++
		c.stats.LongestWait = max(c.stats.LongestWait, time.Duration(e.T-op.Asked))
		l := c.line(op.Name)
		l.live = append(l.live, op)
	case Failed:
		c.failed(op, e.Err, e.Text)
		delete(c.open, op.Key)
	case Still:
		op.Claim = max(op.Claim, e.End)
	case Told:
		op.Told, op.ToldToken, op.ToldWhy = e.T, e.Token, e.Text
		op.Claim = max(op.Claim, min(e.End, e.T))
		if op.In == 0 { // the observer is told once, of the whole
			c.lossOf(lossKey{op.life(), op.Name, op.Token}).told++
			c.stats.Lost++
		}
	case Out:
		op.Out, op.OutErr = e.T, e.Err
		op.Claim = max(op.Claim, e.End)
		c.stats.LongestHold = max(c.stats.LongestHold, time.Duration(e.T-op.Granted))
	case Done:
		op.Done, op.DoneErr = e.T, e.Err
		if e.Err == "" {
			c.stats.Released++
		}
		c.doneErr(op, e.Text)
		delete(c.open, op.Key)
	case Read, Write:
		c.register(op, e)
	}
}

func (c *Checker) fault(e Event) {
	if e.What == Fault {
		c.stats.Faults[e.Text]++
		c.upsets[e.P] = append(c.upsets[e.P], upset{e.Text, e.T, math.MaxInt64})
		return
	}
	us := c.upsets[e.P]
	for i := len(us) - 1; i >= 0; i-- {
		if us[i].kind == e.Text && us[i].to == math.MaxInt64 {
			us[i].to = e.T
			return
		}
	}
}

// gone ends the calls of a process.
func (c *Checker) gone(lf life, t int64, killed bool) {
	delete(c.heard, lf)
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
			l := c.line(op.Name)
			l.unknown = append(l.unknown, op)
		}
		delete(c.open, key)
	}
}

// after takes what was found when all faults were over.
func (c *Checker) after(e Event) {
	switch {
	case e.What == Residue:
		c.violate("C8", e.Name, e.T, "the store still has "+e.Text)
	case e.What == Stuck:
		c.violate("C7", e.Name, e.T, e.Text)
	case e.Err != "":
		c.violate("C7", e.Name, e.T, "a fresh process did not get it: "+e.Err+" "+e.Text)
	case time.Duration(e.Gap) > c.rules.Takes+c.rules.Slack:
		c.violate("C7", e.Name, e.T, fmt.Sprintf("a fresh process got it after %v; the most is %v and %v of slack",
			time.Duration(e.Gap), c.rules.Takes, c.rules.Slack))
	}
}

// violate takes down what is wrong. It says whether that was not known before.
func (c *Checker) violate(check, name string, at int64, text string, ops ...*Op) bool {
	id := check + name + text
	for _, op := range ops {
		id += fmt.Sprint(op.Key)
	}
	if len(ops) > 0 {
		id = check + id[len(check)+len(name)+len(text):]
	}
	if c.seen[id] {
		return false
	}
	if slices.Contains(c.rules.Exposed, check) {
		c.seen[id] = true
		c.stats.Exposed[check]++
		return true
	}
	if c.listed[check] == maxViolations {
		c.dropped++
		return true
	}
	c.listed[check]++
	c.seen[id] = true
	copies := make([]*Op, len(ops))
	for i, op := range ops {
		copies[i] = new(*op)
	}
	c.bad = append(c.bad, Violation{check, name, text, copies, at})
	return true
}

// horizon is the time up to which everything is known.
func (c *Checker) horizon() int64 {
	t := Now()
	for _, heard := range c.heard {
		t = min(t, heard)
	}
	return t
}

// Check judges what is known by now, and forgets what cannot matter any more.
// It is called from time to time, and by Finish.
func (c *Checker) Check() { c.judge(c.horizon()) }

func (c *Checker) judge(t int64) {
	// Floors are needed from the oldest call that may still be granted.
	oldest := t
	for _, op := range c.open {
		if op.Granted == 0 {
			oldest = min(oldest, op.Asked)
		}
	}
	for _, l := range c.lines {
		c.exclusion(l, t)
		c.tokens(l, t, oldest)
		c.order(l)
		c.retire(l, t)
		if len(l.ended) >= sliceSize {
			c.linear(l)
		}
	}
}

// retire takes the calls out of the window that ended before t.
func (c *Checker) retire(l *line, t int64) {
	var live, old []*Op
	for _, op := range l.live {
		if !op.final() || op.until() > t || !op.ordered {
			live = append(live, op)
			continue
		}
		old = append(old, op)
		c.loss(op)
		l.ended = append(l.ended, op)
	}
	if l.live = live; len(old) > 0 {
		l.old = append(l.old[max(0, len(l.old)-maxOld):], old...)
	}
}

// maxOld is how many calls of earlier windows C4 remembers.
const maxOld = 500

// Finish judges all the rest. No process may live any more.
func (c *Checker) Finish() {
	clear(c.heard)
	c.judge(math.MaxInt64 - 1)
	for _, l := range c.lines {
		c.linear(l)
	}
	c.losses()
	if c.stats.Undecided*100 > c.stats.Slices {
		c.violate("C5", "", Now(), fmt.Sprintf("%d of %d slices could not be decided in time", c.stats.Undecided, c.stats.Slices))
	}
}

// Violations returns what was broken so far, at most 8 for each check, and how
// many more there were.
func (c *Checker) Violations() ([]Violation, int) { return c.bad, c.dropped }

// Stats returns what was judged so far. Its maps are the Checker's own.
func (c *Checker) Stats() Stats { return c.stats }

// Describe writes a violation for people, its calls beside each other, with
// times in seconds since the first event.
func (c *Checker) Describe(v Violation) string {
	return fmt.Sprintf("%s %s at %.6f: %s\n%s", v.Check, v.Name, time.Duration(v.At-c.zero).Seconds(), v.Text, beside(c.zero, v.Ops))
}
