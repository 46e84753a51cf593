package torture

import (
	"fmt"
	"slices"

	"github.com/holdfast-go/holdfast/internal/safety/checker"
)

// Fault is a kind of fault that the caller of Run can cause, because the store
// or the way to it is the caller's: a server that is killed, stopped or loses
// its data, a client that is cut off.
type Fault struct {
	Kind   string // the name in plans and reports; none of Kinds
	Weight int    // the frequency, compared with 25 for a pause, 15 for a kill and 20 for requests
	// Client means that the fault strikes one client, whose number is passed to
	// Begin. Otherwise it strikes all clients, and Begin receives check.Store.
	Client bool
	// Begin causes the fault and returns a function that ends it. Both block
	// until they are done. An error of either ends the run.
	Begin func(client int) (heal func() error, err error)
}

// fault returns the fault of a kind that is none of Kinds.
func (c *Config) fault(kind string) *Fault {
	if i := slices.IndexFunc(c.Own, func(f Fault) bool { return f.Kind == kind }); i >= 0 {
		return &c.Own[i]
	}
	return nil
}

// weight returns the weight of a kind.
func (c *Config) weight(kind string) int {
	if f := c.fault(kind); f != nil {
		return f.Weight
	}
	return weights[kind]
}

// checkOwn refuses invalid faults.
func (c *Config) checkOwn() error {
	for i, f := range c.Own {
		twice := slices.ContainsFunc(c.Own[:i], func(g Fault) bool { return g.Kind == f.Kind })
		if f.Kind == "" || f.Begin == nil || f.Weight < 1 || twice || slices.Contains(Kinds(), f.Kind) {
			return fmt.Errorf("torture: the fault %q of its own has no name, no weight, no Begin, or is there twice", f.Kind)
		}
	}
	return nil
}

// beginOwn begins a fault of Config.Own.
func (r *run) beginOwn(s Step, f *Fault) (heal func() error, err error) {
	end, err := f.Begin(s.Target)
	if err != nil {
		return nil, fmt.Errorf("torture: %s: %w", s.Kind, err)
	}
	return func() error {
		if err := end(); err != nil {
			return fmt.Errorf("torture: the end of %s: %w", s.Kind, err)
		}
		r.fault(checker.Heal, s, "")
		return nil
	}, nil
}
