package torture

import (
	"fmt"
	"slices"

	"github.com/holdfast-go/holdfast/check"
)

// Fault is a kind of fault that the one who runs the test can bring about,
// since the store or the way to it is its own: a server that is killed, stopped
// or loses its data, a client that is cut off.
type Fault struct {
	Kind   string // as plans and reports name it; none of Kinds
	Weight int    // how often, beside a pause with 25, a kill with 15 and requests with 20
	// Client says that it strikes one client, whose number Begin gets. Else it
	// strikes all of them, and Begin gets check.Store.
	Client bool
	// Begin brings it about and returns what ends it. Both block until it is
	// done. An error of either ends the run.
	Begin func(client int) (heal func() error, err error)
}

// fault returns the fault of a kind that is none of Kinds.
func (c *Config) fault(kind string) *Fault {
	if i := slices.IndexFunc(c.Own, func(f Fault) bool { return f.Kind == kind }); i >= 0 {
		return &c.Own[i]
	}
	return nil
}

// weight of a kind, in percent of the sum of those that are allowed.
func (c *Config) weight(kind string) int {
	if f := c.fault(kind); f != nil {
		return f.Weight
	}
	return weights[kind]
}

// checkOwn refuses faults that cannot be.
func (c *Config) checkOwn() error {
	for i, f := range c.Own {
		twice := slices.ContainsFunc(c.Own[:i], func(g Fault) bool { return g.Kind == f.Kind })
		if f.Kind == "" || f.Begin == nil || f.Weight < 1 || twice || slices.Contains(Kinds(), f.Kind) {
			return fmt.Errorf("torture: the fault %q of its own has no name, no weight, no Begin, or is there twice", f.Kind)
		}
	}
	return nil
}

// own begins one of Config.Own.
func (r *run) own(s Step, f *Fault) (heal func() error, err error) {
	end, err := f.Begin(s.Target)
	if err != nil {
		return nil, fmt.Errorf("torture: %s: %w", s.Kind, err)
	}
	return func() error {
		if err := end(); err != nil {
			return fmt.Errorf("torture: the end of %s: %w", s.Kind, err)
		}
		r.fault(check.Heal, s, "")
		return nil
	}, nil
}
