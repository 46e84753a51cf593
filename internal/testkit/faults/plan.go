// Package faults loses, delays, doubles and refuses requests, answers and
// pushes on the way between a caller and any driver, by a [Plan].
//
// A plan is a value that can be printed, and read back from what it prints:
//
//	seed 7; join 1: lose answer; renew 3-5: hold request 2s; push 20%: drop; any 5%: refuse; join for 12s: not ready 1s
package faults

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"
)

// Plan is a list of faults for the requests of a driver. The first rule that
// applies to a request decides about it. A request that no rule applies to is
// sent unchanged.
type Plan struct {
	Seed  uint64 // decides where odds are involved
	Rules []Rule
}

// A Rule is one kind of fault.
type Rule struct {
	On       Op
	From, To int           // the requests of that Op by number, from 1, of one driver; 0, 0: all
	Odds     int           // in percent; 0 means always
	Within   time.Duration // only that long after the driver was wrapped; 0 means always
	Do       Effect
	For      time.Duration // of effects that take time
}

// Op is a kind of request, or a push.
type Op uint8

// The kinds. Any means every request, but no push.
const (
	Any Op = iota
	Join
	Renew
	Leave
	Watch
	Inspect
	Names
	Break
	Push
	Mark
	SetMark
	ops
)

var opNames = [ops]string{"any", "join", "renew", "leave", "watch", "inspect", "names", "break", "push", "mark", "setmark"}

// String returns the name of the method, in lower case.
func (o Op) String() string { return opNames[o] }

// Effect is the effect of a rule on a request or a push.
type Effect uint8

// The effects. Those before Drop are for requests, and those from it on for
// pushes. Where a request's caller learns nothing, its error is of the
// class Unknown; it comes after Rule.For, or when its context ends.
const (
	// CutRequest: the request never arrives.
	CutRequest Effect = iota
	// LoseAnswer: the request is carried out, the answer is lost.
	LoseAnswer
	// HoldRequest: the request arrives after Rule.For, even if its caller has
	// given up by then.
	HoldRequest
	// HoldAnswer: the request is carried out at once, the answer arrives after
	// Rule.For.
	HoldAnswer
	// Double: the request is carried out twice; the second answer counts. The outcome
	// is unknown if only the second one was surely not carried out.
	Double
	// Refuse: the store is unavailable, and says so.
	Refuse
	// NotReady: the store says that it is not ready, for Rule.For if that is
	// not 0.
	NotReady
	// Overload: the request is carried out at once, the answer arrives after
	// Rule.For for each request that is under way then.
	Overload

	// Drop: the push is lost.
	Drop
	// Repeat: the push comes twice.
	Repeat
	// Late: the push comes after Rule.For.
	Late
	// Swap: the push comes after the one that follows it.
	Swap
	// Gap: the push is lost, and the client is told that it missed something.
	Gap
	effects
)

var effectNames = [effects]string{"cut request", "lose answer", "hold request", "hold answer", "double", "refuse", "not ready", "crowd", "drop", "repeat", "late", "swap", "gap"}

// String returns the effect in words.
func (e Effect) String() string { return effectNames[e] }

// String returns the rule in the form that Parse reads.
func (r Rule) String() string {
	s := r.On.String()
	switch {
	case r.From != r.To:
		s += fmt.Sprintf(" %d-%d", r.From, r.To)
	case r.From != 0:
		s += fmt.Sprintf(" %d", r.From)
	}
	if r.Odds != 0 {
		s += fmt.Sprintf(" %d%%", r.Odds)
	}
	if r.Within != 0 {
		s += " for " + r.Within.String()
	}
	s += ": " + r.Do.String()
	if r.For != 0 {
		s += " " + r.For.String()
	}
	return s
}

// String returns the plan in the form that Parse reads.
func (p Plan) String() string {
	var parts []string
	if p.Seed != 0 {
		parts = append(parts, fmt.Sprintf("seed %d", p.Seed))
	}
	for _, r := range p.Rules {
		parts = append(parts, r.String())
	}
	return strings.Join(parts, "; ")
}

// Parse reads a plan as its String prints it. The empty string is the plan
// without rules.
func Parse(s string) (Plan, error) {
	var p Plan
	if strings.TrimSpace(s) == "" {
		return p, nil
	}
	for i, part := range strings.Split(s, ";") {
		part = strings.TrimSpace(part)
		if seed, ok := strings.CutPrefix(part, "seed "); ok && i == 0 {
			n, err := strconv.ParseUint(seed, 10, 64)
			if err != nil {
				return Plan{}, fmt.Errorf("seed %q: %w", seed, err)
			}
			p.Seed = n
			continue
		}
		r, err := parseRule(part)
		if err != nil {
			return Plan{}, fmt.Errorf("rule %q: %w", part, err)
		}
		p.Rules = append(p.Rules, r)
	}
	return p, nil
}

func parseRule(s string) (r Rule, err error) {
	on, do, ok := strings.Cut(s, ":")
	if !ok {
		return r, errors.New("there is no colon")
	}
	words := strings.Fields(on)
	if len(words) == 0 {
		return r, errors.New("it does not say which requests")
	}
	if r.On, err = indexOfName[Op](opNames[:], words[0]); err != nil {
		return r, err
	}
	for i := 1; i < len(words); i++ {
		word := words[i]
		if word == "for" && i+1 < len(words) {
			i++
			if r.Within, err = time.ParseDuration(words[i]); err == nil && r.Within <= 0 {
				err = fmt.Errorf("for %s", words[i])
			}
		} else if odds, ok := strings.CutSuffix(word, "%"); ok {
			if r.Odds, err = strconv.Atoi(odds); err == nil && (r.Odds < 1 || r.Odds > 100) {
				err = fmt.Errorf("odds of %d%%", r.Odds)
			}
		} else {
			from, to, between := strings.Cut(word, "-")
			if !between {
				to = from
			}
			r.From, err = strconv.Atoi(from)
			if err == nil {
				r.To, err = strconv.Atoi(to)
			}
			if err == nil && (r.From < 1 || r.To < r.From) {
				err = fmt.Errorf("numbers %s", word)
			}
		}
		if err != nil {
			return r, err
		}
	}
	words = strings.Fields(do)
	if n := len(words); n > 0 && words[n-1][0] >= '0' && words[n-1][0] <= '9' {
		if r.For, err = time.ParseDuration(words[n-1]); err != nil {
			return r, err
		}
		words = words[:n-1]
	}
	if r.Do, err = indexOfName[Effect](effectNames[:], strings.Join(words, " ")); err != nil {
		return r, err
	}
	return r, r.check()
}

func indexOfName[E ~uint8](names []string, s string) (E, error) {
	for i, name := range names {
		if name == s {
			return E(i), nil
		}
	}
	return 0, fmt.Errorf("%q is none of %s", s, strings.Join(names, ", "))
}

func (r Rule) check() error {
	if (r.On == Push) != (r.Do >= Drop) {
		return fmt.Errorf("%v does not happen to %v", r.Do, r.On)
	}
	return nil
}

// applies reports whether the rule at index i decides about request n of op. At
// is the time since the driver was wrapped.
func (p Plan) applies(i int, op Op, n int, at time.Duration) bool {
	r := p.Rules[i]
	switch {
	case r.Within != 0 && at >= r.Within:
		return false
	case r.On != op && (r.On != Any || op == Push):
		return false
	case r.From != 0 && (n < r.From || n > r.To):
		return false
	case r.Odds == 0:
		return true
	}
	rnd := rand.New(rand.NewPCG(p.Seed, uint64(i)<<40|uint64(op)<<32|uint64(n)))
	return rnd.IntN(100) < r.Odds
}

// Random returns a plan with every kind of fault, each of which applies to the
// given percentage of requests. Requests are held back for up to longest.
func Random(seed uint64, percent int, longest time.Duration) Plan {
	rnd := rand.New(rand.NewPCG(seed, 0))
	p := Plan{Seed: seed}
	for e := range effects {
		r := Rule{Odds: percent, Do: e}
		if e >= Drop {
			r.On = Push
		}
		switch e {
		case HoldRequest, HoldAnswer, Late:
			r.For = time.Duration(1 + rnd.Int64N(int64(max(longest, 1))))
		case CutRequest, LoseAnswer:
			if rnd.IntN(2) == 0 {
				r.For = longest
			}
		}
		p.Rules = append(p.Rules, r)
	}
	rnd.Shuffle(len(p.Rules), func(i, j int) { p.Rules[i], p.Rules[j] = p.Rules[j], p.Rules[i] })
	return p
}
