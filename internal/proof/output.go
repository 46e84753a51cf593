package main

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Verdict is the end of a run of TLC.
type Verdict int

// The verdicts. Only Holds may ever be called proved, and only within bounds.
const (
	Failed   Verdict = iota // TLC did not check: a mistake in a module, no memory
	Unended                 // stopped before the end; nothing was violated until then
	Violated                // a property does not hold
	Holds                   // every reachable state was seen, and every property holds
	Walked                  // all random walks were made, and nothing was violated on them
)

// String returns the verdict in lower case.
func (v Verdict) String() string {
	return [...]string{"failed", "not ended", "violated", "holds", "walked"}[v]
}

// Outcome is the meaning of TLC's output.
type Outcome struct {
	Verdict  Verdict
	Property string // the violated one: a name, "deadlock", "assumption", or "temporal"
	Reason   string // why it failed

	Generated, Distinct, Open int64 // states; Open are those not yet looked at
	Depth                     int   // length of the longest of all shortest ways

	Actions map[string]Taken // by "Module.Action"
	Trace   []Step           // how the property was violated
	CPU     time.Duration    // processor time of TLC, which does not grow with what else the machine does
	Printed []string         // tuples that the module printed, each in one line
}

// Taken is a count of the times that an action was taken.
type Taken struct{ New, All int64 } // to a state not seen before; at all

// Step is one state of a counterexample.
type Step struct {
	Action string
	State  string // as TLC writes it
	Loop   bool   // the way goes back to this state for ever
}

var (
	violatedRE  = regexp.MustCompile(`^Error: (?:Invariant|Action property) (\S+) is violated`)
	refinesRE   = regexp.MustCompile(`^Error: Action property line \d+.* of module \w+ is violated`)
	temporalRE  = regexp.MustCompile(`^Error: Temporal properties were violated`)
	deadlockRE  = regexp.MustCompile(`^Error: Deadlock reached`)
	assumeRE    = regexp.MustCompile(`^Error: Assumption line \d+.* is false`)
	errorRE     = regexp.MustCompile(`^(?:Error: (.*)|\*\*\*Parse Error\*\*\*)$`)
	walkedRE    = regexp.MustCompile(`^Progress: ([\d,]+) states checked\.`)
	finishedRE  = regexp.MustCompile(`^Finished in `)
	completedRE = regexp.MustCompile(`^Model checking completed\. No error has been found\.`)
	countsRE    = regexp.MustCompile(`^([\d,]+) states generated, ([\d,]+) distinct states found, ([\d,]+) states left on queue`)
	depthRE     = regexp.MustCompile(`^The depth of the complete state graph search is (\d+)`)
	progressRE  = regexp.MustCompile(`^Progress\((\d+)\) at .*: ([\d,]+) states generated.*, ([\d,]+) distinct states found.*, ([\d,]+) states left on queue`)
	actionRE    = regexp.MustCompile(`^<(\w+) line \d+.* of module (\w+)(?: \([\d ]+\))?>: (\d+):(\d+)$`)
	stateRE     = regexp.MustCompile(`^(?:State )?(\d+): (?:<(.*?)>|Stuttering)`)
	backRE      = regexp.MustCompile(`^Back to state(?: (\d+))?:?`)
)

// parseOutput reads what TLC has printed, in whatever state it was stopped. It
// never takes the lack of an error for a verdict: that has to be printed.
func parseOutput(text string) (*Outcome, error) {
	o := &Outcome{Actions: map[string]Taken{}}
	lines := strings.Split(text, "\n")
	completed, ended, said := false, false, false
	walks, finished := false, false
	for i := 0; i < len(lines); i++ {
		line := lines[i]
		switch {
		case strings.HasPrefix(line, "<<"):
			text := []string{line}
			for strings.Count(text[0], "<<") != strings.Count(text[0], ">>") && i+1 < len(lines) {
				i++
				text[0] += " " + strings.TrimSpace(lines[i])
			}
			o.Printed = append(o.Printed, strings.NewReplacer("<< ", "<<", " >>", ">>").Replace(text[0]))
		case walkedRE.MatchString(line):
			said, walks = true, true
			o.Generated = number(walkedRE.FindStringSubmatch(line)[1])
		case finishedRE.MatchString(line):
			finished = true
		case completedRE.MatchString(line):
			completed = true
		case refinesRE.MatchString(line):
			o.violates("temporal")
		case violatedRE.MatchString(line):
			o.violates(violatedRE.FindStringSubmatch(line)[1])
		case temporalRE.MatchString(line):
			o.violates("temporal")
		case deadlockRE.MatchString(line):
			o.violates("deadlock")
		case assumeRE.MatchString(line):
			o.violates("assumption")
		case strings.HasPrefix(line, "Error: The behavior up to this point is"),
			strings.HasPrefix(line, "Error: The following behavior constitutes a counter-example"):
		case errorRE.MatchString(line):
			if o.Reason == "" && o.Verdict != Violated {
				o.Reason = strings.TrimSpace(strings.Join(lines[i:min(i+6, len(lines))], " "))
			}
		case countsRE.MatchString(line):
			m := countsRE.FindStringSubmatch(line)
			said, ended = true, true
			o.Generated, o.Distinct, o.Open = number(m[1]), number(m[2]), number(m[3])
		case progressRE.MatchString(line):
			m := progressRE.FindStringSubmatch(line)
			said = true
			o.Depth = int(number(m[1]))
			o.Generated, o.Distinct, o.Open = number(m[2]), number(m[3]), number(m[4])
		case depthRE.MatchString(line):
			o.Depth = int(number(depthRE.FindStringSubmatch(line)[1]))
		case actionRE.MatchString(line):
			m := actionRE.FindStringSubmatch(line)
			o.Actions[m[2]+"."+m[1]] = Taken{number(m[3]), number(m[4])}
		case o.Verdict == Violated && stateRE.MatchString(line):
			i = o.step(lines, i)
		case o.Verdict == Violated && backRE.MatchString(line):
			if err := o.loop(line); err != nil {
				return nil, err
			}
		}
	}
	switch {
	case o.Verdict == Violated:
	case o.Reason != "":
	case completed && ended && o.Open == 0:
		o.Verdict = Holds
	case completed && ended:
		return nil, fmt.Errorf("TLC says that it completed, with %d states open", o.Open)
	case walks && finished:
		o.Verdict = Walked
	case said:
		o.Verdict = Unended
	default:
		o.Reason = "it printed no verdict"
	}
	return o, nil
}

func (o *Outcome) violates(property string) {
	if o.Verdict != Violated { // the first one counts
		o.Verdict, o.Property = Violated, property
	}
}

// step reads one state of a counterexample and returns its last line.
func (o *Outcome) step(lines []string, i int) int {
	m := stateRE.FindStringSubmatch(lines[i])
	s := Step{Action: "Stuttering", Loop: m[2] == ""}
	if m[2] != "" {
		s.Action, _, _ = strings.Cut(m[2], " ")
	}
	if s.Action == "Initial" {
		s.Action = "Init"
	}
	var state []string
	for i+1 < len(lines) && strings.TrimSpace(lines[i+1]) != "" && !stateRE.MatchString(lines[i+1]) {
		i++
		state = append(state, lines[i])
	}
	s.State = strings.Join(state, "\n")
	o.Trace = append(o.Trace, s)
	return i
}

func (o *Outcome) loop(line string) error {
	n, err := strconv.Atoi(backRE.FindStringSubmatch(line)[1])
	if err != nil || n < 1 || n > len(o.Trace) {
		return fmt.Errorf("a counterexample of %d states goes on with %q", len(o.Trace), line)
	}
	o.Trace[n-1].Loop = true
	return nil
}

func number(s string) int64 {
	n, _ := strconv.ParseInt(strings.ReplaceAll(s, ",", ""), 10, 64) // digits and commas alone get here
	return n
}
