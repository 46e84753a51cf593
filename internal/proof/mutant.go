package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// Mutant is a specification with one mistake, which one property has to refute.
type Mutant struct {
	Name     string            `json:"name"`
	Was      string            `json:"was"`              // where such a mistake was met, or is planted
	Config   string            `json:"cfg"`              // the configuration that it changes
	Bug      string            `json:"bug,omitempty"`    // value of the constant Bug
	Change   map[string]string `json:"change,omitempty"` // other constants
	Property string            `json:"property"`         // the one that is checked, and fails
	Steps    int               `json:"steps,omitempty"`  // states in the shortest counterexample; 0 for a loop, whose length TLC's timing decides
	Lane     string            `json:"lane"`
}

// parseMutants reads mutants.json.
func parseMutants(text []byte, configs []*Config) ([]Mutant, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	var all []Mutant
	if err := d.Decode(&all); err != nil {
		return nil, fmt.Errorf("mutants.json: %w", err)
	}
	seen := map[string]bool{}
	for _, m := range all {
		if _, err := m.config(configs); err != nil {
			return nil, fmt.Errorf("mutants.json: %q: %w", m.Name, err)
		}
		if m.Name == "" || m.Was == "" || seen[m.Name] {
			return nil, fmt.Errorf("mutants.json: %q has no name of its own, or does not say where it was met", m.Name)
		}
		if m.Steps == 0 && slices.Contains(configOf(configs, m.Config).Invariants, m.Property) {
			return nil, fmt.Errorf("mutants.json: %q does not note how long its counterexample is", m.Name)
		}
		if m.Lane != "build" && m.Lane != "release" {
			return nil, fmt.Errorf("mutants.json: %q is of no lane", m.Name)
		}
		seen[m.Name] = true
	}
	return all, nil
}

// assumption is the property of a mutant that an ASSUME refutes.
const assumption = "assumption"

// config returns what TLC is to check.
func (m Mutant) config(configs []*Config) (*Config, error) {
	base := configOf(configs, m.Config)
	if base == nil {
		return nil, fmt.Errorf("there is no %s.cfg", m.Config)
	}
	if base.Expect != "holds" || base.Walks > 0 {
		return nil, fmt.Errorf("%s.cfg does not hold without it either", m.Config)
	}
	changes := maps.Clone(m.Change)
	if changes == nil {
		changes = map[string]string{}
	}
	if m.Bug != "" {
		changes["Bug"] = `"` + m.Bug + `"`
	}
	if len(changes) == 0 {
		return nil, fmt.Errorf("it changes nothing")
	}
	c := base
	var err error
	if m.Property != assumption {
		if c, err = base.only(m.Property); err != nil {
			return nil, err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(changes)) {
		if c, err = c.with(name, changes[name]); err != nil {
			return nil, err
		}
	}
	return c, nil
}

func configOf(configs []*Config, name string) *Config {
	i := slices.IndexFunc(configs, func(c *Config) bool { return c.Name == name })
	if i < 0 {
		return nil
	}
	return configs[i]
}
