package bench

import (
	"context"
	"fmt"
	"sync"
	"testing"
)

// namesSeen is a lock service that notes the names of its locks.
type namesSeen struct {
	mu    sync.Mutex
	names map[string]int
	now   int // callers in Lock
	most  int
}

func (s *namesSeen) Lock(_ context.Context, name string) (Held, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.names[name]++
	s.now++
	s.most = max(s.most, s.now)
	return unlockFunc(func() { s.mu.Lock(); s.now--; s.mu.Unlock() }), nil
}

func (s *namesSeen) Close() error { return nil }

type unlockFunc func()

// Unlock implements Held.
func (f unlockFunc) Unlock() error { f(); return nil }

// TestScenariosOfManyNamesAndCrowds checks which locks the scenarios of many names use,
// and that a crowd comes before the one of a process that was crowded, but not for an
// implementation that is to be fresh.
func TestScenariosOfManyNamesAndCrowds(t *testing.T) {
	for _, c := range []struct {
		scenario string
		fresh    bool
		names    int
		each     int // the fewest times that each name was used
	}{
		{scenario: "alone-1", names: 1},
		{scenario: "alone-1-10000", names: 10000},
		{scenario: "alone-64", names: 64},
		{scenario: "alone-64-10000", names: 10000},
		{scenario: "alone-1-contended", names: 64, each: 50},
		{scenario: "alone-1-contended", fresh: true, names: 1},
	} {
		seen := &namesSeen{names: make(map[string]int)}
		cfg := config(t, func(context.Context, Spec, Seat) (Client, error) { return seen, nil }, "seen")
		cfg.Targets[0].Fresh, cfg.Runs = c.fresh, 1
		var err error
		if cfg.Scenarios, err = Choose([]string{c.scenario}); err != nil {
			t.Fatal(err)
		}
		for _, s := range cfg.Scenarios {
			// A run has as many cycles as all names need, on a busy machine, too.
			for len(seen.names) < s.Names || len(seen.names) == 0 {
				if _, err := Run(t.Context(), cfg); err != nil {
					t.Fatal(err)
				}
				cfg.Duration *= 4
			}
		}
		if len(seen.names) != c.names {
			t.Errorf("%s, fresh %v: %d names, want %d", c.scenario, c.fresh, len(seen.names), c.names)
		}
		prefix := fmt.Sprint("bench/", c.scenario, "/own-")
		for i := range c.names {
			if n := seen.names[fmt.Sprint(prefix, i)]; n < max(c.each, 1) {
				t.Errorf("%s: %s%d was used %d times", c.scenario, prefix, i, n)
				break
			}
		}
		if c.scenario == "alone-64-10000" && seen.most > 64 {
			t.Errorf("%s: %d at once", c.scenario, seen.most)
		}
	}
}
