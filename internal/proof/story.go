package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// pictures is the folder of the counterexamples that are published, each as a text
// and as a picture of it.
const pictures = "docs/proof/pictures"

// lanesOf are the columns of the pictures of each module, as its operator Picture
// has them.
var lanesOf = map[string][]string{
	"Failover":  {"client 1", "client 2", "server 0", "server 1"},
	"LineStory": {"client a", "client b", "the store"},
	"Claim":     {"client 1", "client 2", "the store", "the resource"},
	"Nodes":     {"client 1", "client 2", "node 1", "node 2", "node 3"},
}

// phrases says what an action of a module is, for readers of a picture.
var phrases = map[string]map[string]string{
	"Failover": {
		"Join": "Join takes effect at the primary", "Answer": "its answer arrives", "Replicate": "a replica catches up",
		"Leave": "a client releases", "Die": "the primary dies", "Promote": "a replica is promoted",
	},
	"LineStory": {
		"Ask": "a client sends Join", "Arrive": "the request takes effect", "JoinReply": "its answer arrives",
		"SendRenew": "a client sends Renew", "RenewReply": "its answer arrives", "Wipe": "the store loses its data",
		"StoreTick": "the store's clock ticks", "ClientTick": "a client's clock ticks", "Expire": "the store drops an overdue place",
	},
	"Claim": {
		"Look": "client 1 asks: Err() == nil", "Stop": "client 1 is stopped", "Resume": "client 1 goes on", "Write": "client 1 writes",
		"OtherWrites": "client 2 writes", "Expire": "the store grants to client 2", "Tick": "a tick passes", "Fire": "the loss is told",
		"Slow": "the store's clock ticks", "Fast": "client 1's clock ticks",
	},
	"Nodes": {
		"Seek": "a client begins", "Vote": "a node votes", "Won": "a client counts its votes", "Crash": "a node comes back empty",
		"Jump": "a node's clock jumps ahead", "Tick": "a tick passes", "Renew": "a vote is renewed", "WriteBack": "a token is written back",
		"GiveBack": "a client gives up", "Leave": "a vote is given back",
	},
}

// Story is a counterexample as it is published.
type Story struct {
	Config, Property string
	Lanes            []string
	Steps            []StoryStep
}

// StoryStep is a state of a counterexample: what is in each lane.
type StoryStep struct {
	Action string
	Shows  []string // lines are divided by "|"
	State  string   // as TLC writes it
}

// tell returns the counterexample of a run. TLC computes once more what each of its
// states shows.
func (k *Checker) tell(ctx context.Context, r *Run) (*Story, error) {
	module := r.Config.Module()
	s := &Story{Config: r.Config.Name, Property: r.Property, Lanes: lanesOf[module]}
	var text bytes.Buffer
	fmt.Fprintf(&text, "---- MODULE Told ----\nEXTENDS %s, TLC\nVARIABLE told\n", module)
	for i, step := range r.Outcome.Trace {
		fmt.Fprintf(&text, "Told%d ==\n/\\ told = %d\n%s\n", i+1, i+1, step.State)
		s.Steps = append(s.Steps, StoryStep{Action: step.Action, State: step.State})
	}
	text.WriteString("ToldInit == ")
	for i := range r.Outcome.Trace {
		fmt.Fprintf(&text, "\\/ Told%d ", i+1)
	}
	text.WriteString("\nToldSpec == ToldInit /\\ [][FALSE]_<<vars, told>>\nTells == PrintT(<<\"SHOWS\", told, Picture>>)\n====\n")
	with := *k
	with.More = map[string][]byte{"Told.tla": text.Bytes()}
	c := &Config{Name: "Told", Spec: "ToldSpec", Constants: r.Config.Constants, Invariants: []string{"Tells"}}
	o, _, err := with.check(ctx, "told-"+r.Config.Name, c, false)
	if err != nil {
		return nil, err
	}
	if o.Verdict != Holds {
		return nil, fmt.Errorf("its states are not understood: %s %s", o.Verdict, o.Reason)
	}
	for _, line := range o.Printed {
		n, shows, err := shown(line)
		if err != nil {
			return nil, err
		}
		if n < 1 || n > len(s.Steps) || len(shows) != len(s.Lanes) {
			return nil, fmt.Errorf("state %d of %d shows %d of %d lanes", n, len(s.Steps), len(shows), len(s.Lanes))
		}
		s.Steps[n-1].Shows = shows
	}
	return s, s.check()
}

var shownRE = regexp.MustCompile(`^<<"SHOWS", (\d+), <<(.*)>>>>$`)

var oneRE = regexp.MustCompile(`\b1 (tick|vote)s\b`)

// shown reads what TLC printed of one state: a tuple of words for each lane.
func shown(line string) (int, []string, error) {
	m := shownRE.FindStringSubmatch(line)
	if m == nil {
		return 0, nil, fmt.Errorf("TLC printed %q", line)
	}
	var lanes []string
	for _, lane := range elements(m[2]) {
		words := elements(strings.TrimSuffix(strings.TrimPrefix(lane, "<<"), ">>"))
		for i := range words {
			words[i] = strings.Trim(words[i], `"`)
		}
		lanes = append(lanes, oneRE.ReplaceAllString(strings.ReplaceAll(strings.Join(words, " "), " , ", ", "), "1 $1"))
	}
	return int(number(m[1])), lanes, nil
}

func (s *Story) check() error {
	module, _, _ := strings.Cut(s.Config, ".")
	if len(s.Steps) == 0 || len(s.Lanes) == 0 {
		return fmt.Errorf("%s: a counterexample of %d states and %d lanes", s.Config, len(s.Steps), len(s.Lanes))
	}
	for i, step := range s.Steps {
		if len(step.Shows) != len(s.Lanes) {
			return fmt.Errorf("%s: state %d has %d of %d lanes", s.Config, i+1, len(step.Shows), len(s.Lanes))
		}
		if i > 0 && phrases[module][step.Action] == "" {
			return fmt.Errorf("%s: there is no phrase for action %s", s.Config, step.Action)
		}
	}
	return nil
}

// phrase returns the words for step i.
func (s *Story) phrase(i int) string {
	if i == 0 {
		return "at first"
	}
	module, _, _ := strings.Cut(s.Config, ".")
	return phrases[module][s.Steps[i].Action]
}

// text returns the story as it is published: for each state its action, what the
// picture shows, and all of its variables as TLC wrote them.
func (s *Story) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "The counterexample of TLC to property %s in %s.cfg; see the folder proof.\n", s.Property, s.Config)
	for i, step := range s.Steps {
		fmt.Fprintf(&b, "\nState %d: %s\n", i+1, step.Action)
		for n, lane := range s.Lanes {
			fmt.Fprintf(&b, "\\* %s: %s\n", lane, step.Shows[n])
		}
		fmt.Fprintln(&b, step.State)
	}
	return b.String()
}

var (
	storyRE     = regexp.MustCompile(`^The counterexample of TLC to property (\w+) in ([\w.]+)\.cfg;`)
	storyStepRE = regexp.MustCompile(`^State (\d+): (\w+)$`)
)

// parseStory reads what text wrote.
func parseStory(text string) (*Story, error) {
	m := storyRE.FindStringSubmatch(text)
	if m == nil {
		return nil, fmt.Errorf("it does not begin with its property")
	}
	s := &Story{Config: m[2], Property: m[1]}
	module, _, _ := strings.Cut(s.Config, ".")
	s.Lanes = lanesOf[module]
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if m := storyStepRE.FindStringSubmatch(line); m != nil {
			s.Steps = append(s.Steps, StoryStep{Action: m[2]})
		} else if shows, ok := strings.CutPrefix(line, `\* `); ok && len(s.Steps) > 0 {
			step := &s.Steps[len(s.Steps)-1]
			if len(step.Shows) == len(s.Lanes) {
				return nil, fmt.Errorf("state %d has more than %d lanes", len(s.Steps), len(s.Lanes))
			}
			is, ok := strings.CutPrefix(shows, s.Lanes[len(step.Shows)]+": ")
			if !ok {
				return nil, fmt.Errorf("%q is not of lane %q", shows, s.Lanes[len(step.Shows)])
			}
			step.Shows = append(step.Shows, is)
		} else if len(s.Steps) > 0 && line != "" {
			step := &s.Steps[len(s.Steps)-1]
			step.State = strings.TrimPrefix(step.State+"\n"+line, "\n")
		}
	}
	return s, s.check()
}

// publish writes the counterexample of a run and its picture, or compares it with
// what is published, and returns what differs.
func (k *Checker) publish(ctx context.Context, r *Run, dir string, write bool) (string, error) {
	s, err := k.tell(ctx, r)
	if err != nil {
		return "", fmt.Errorf("%s: %w", r.Name, err)
	}
	name := filepath.Join(dir, r.Config.Picture)
	if write {
		if err := os.WriteFile(name+".txt", []byte(s.text()), 0o644); err != nil {
			return "", err
		}
		return "", os.WriteFile(name+".svg", draw(s), 0o644)
	}
	is, err := os.ReadFile(filepath.Clean(name + ".txt"))
	if err != nil {
		return "", err
	}
	if string(is) != s.text() {
		return name + ".txt is of another counterexample: make proof-pictures", nil
	}
	return "", nil
}
