package torture

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/internal/safety/checker"
	"github.com/holdfast-go/holdfast/internal/testkit/faults"
)

// Step is one fault of a plan.
type Step struct {
	At     time.Duration // since the start
	Kind   string
	Target int // the process, or check.Store
	For    time.Duration
	Plan   string // for Requests, in the form of internal/testkit/faults
}

// String returns the step in one line.
func (s Step) String() string {
	target := "the store"
	if s.Target != checker.Store {
		target = fmt.Sprintf("process %d", s.Target)
	}
	text := fmt.Sprintf("%9.3fs %s of %s for %v", s.At.Seconds(), s.Kind, target, s.For.Round(time.Millisecond))
	if s.Plan != "" {
		text += ": " + s.Plan
	}
	return text
}

func (s Step) end() time.Duration { return s.At + s.For }

// weights are the weights of the kinds that every run can have.
var weights = map[string]int{Pause: 25, Kill: 15, Requests: 20}

// longestHeld bounds the time for which a request is held: stores keep a
// tombstone for a minute.
const longestHeld = 10 * time.Second

// Plan returns the faults of a run: the same for the same Config. At most two
// are in force at once, and never two of one kind. All end before the run does.
func (c Config) Plan() []Step {
	rnd := rand.New(rand.NewPCG(c.Seed, 1))
	pace := c.Pace
	if pace == 0 {
		pace = 1
	}
	between := func(low, high float64) time.Duration {
		return time.Duration((low + rnd.Float64()*(high-low)) * float64(c.TTL) / pace)
	}
	kinds := slices.Clone(c.Faults)
	for _, f := range c.Own {
		kinds = append(kinds, f.Kind)
	}
	slices.Sort(kinds)
	var plan, active []Step
	for at := between(0.5, 2); at < c.Duration && len(kinds) > 0; at += between(0.5, 2) {
		active = slices.DeleteFunc(active, func(s Step) bool { return s.end() <= at })
		s := Step{At: at, Kind: c.pick(rnd, kinds), Target: rnd.IntN(c.Processes), For: between(0.2, 3)}
		if f := c.fault(s.Kind); f != nil && !f.Client {
			s.Target = checker.Store
		}
		switch s.Kind {
		case Kill:
			s.For = between(0, 1)
		case Requests:
			p := c.requests(rnd)
			if s.Plan = p.String(); s.Plan == silence(p.Seed).String() {
				s.For = between(1, 3) // longer than a lease
			}
		}
		taken := slices.ContainsFunc(active, func(a Step) bool { return a.Kind == s.Kind || a.Target == s.Target })
		if len(active) == 2 || taken {
			continue
		}
		s.For = min(s.For, c.Duration-at)
		active = append(active, s)
		plan = append(plan, s)
	}
	return plan
}

func (c *Config) pick(rnd *rand.Rand, kinds []string) string {
	sum := 0
	for _, k := range kinds {
		sum += c.weight(k)
	}
	n := rnd.IntN(sum)
	for _, k := range kinds {
		if n -= c.weight(k); n < 0 {
			return k
		}
	}
	return kinds[0]
}

// silentIn is the number of faults of requests among which one is a silent
// store.
const silentIn = 4

// silence returns the plan of a store that accepts requests and never answers:
// each request hangs until its caller gives it up.
func silence(seed uint64) faults.Plan {
	return faults.Plan{Seed: seed, Rules: []faults.Rule{
		{On: faults.Any, Do: faults.CutRequest, For: time.Hour},
		{On: faults.Push, Do: faults.Drop},
	}}
}

// requests returns the plan of a fault of requests: a silent store, or one or
// two effects on one or all kinds of requests, and one on pushes.
func (c Config) requests(rnd *rand.Rand) faults.Plan {
	p := faults.Plan{Seed: rnd.Uint64N(1 << 32)}
	if rnd.IntN(silentIn) == 0 {
		return silence(p.Seed)
	}
	held := min(c.TTL*3/2, longestHeld)
	on := []faults.Op{faults.Any, faults.Join, faults.Renew, faults.Leave}
	effects := []faults.Effect{faults.CutRequest, faults.LoseAnswer, faults.HoldRequest, faults.HoldAnswer, faults.Double, faults.Refuse}
	for range 1 + rnd.IntN(2) {
		r := faults.Rule{On: on[rnd.IntN(len(on))], Do: effects[rnd.IntN(len(effects))], Odds: 20 + rnd.IntN(81)}
		if r.Do != faults.Double && r.Do != faults.Refuse {
			r.For = time.Duration(rnd.Int64N(int64(held))).Round(time.Millisecond) + time.Millisecond
		}
		p.Rules = append(p.Rules, r)
	}
	push := []faults.Effect{faults.Drop, faults.Repeat, faults.Late, faults.Swap, faults.Gap}
	r := faults.Rule{On: faults.Push, Do: push[rnd.IntN(len(push))], Odds: 20 + rnd.IntN(81)}
	if r.Do == faults.Late {
		r.For = time.Duration(rnd.Int64N(int64(held))).Round(time.Millisecond) + time.Millisecond
	}
	p.Rules = append(p.Rules, r)
	return p
}

// stepsAround returns the steps in force around a time of the run.
func stepsAround(plan []Step, at, ttl time.Duration) (near []Step) {
	for _, s := range plan {
		if s.At <= at+ttl && s.end() >= at-3*ttl {
			near = append(near, s)
		}
	}
	slices.SortFunc(near, func(a, b Step) int { return cmp.Compare(a.At, b.At) })
	return near
}
