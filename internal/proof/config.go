package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Config is a configuration of TLC: which module, in which bounded world, is
// checked for which properties. Its file's name begins with the module's, and
// comments at its head say what it is for.
type Config struct {
	Name  string // of the file, without the extension: "Line.two"
	About string // the first comment
	Lane  string // "build", or "release" when it takes longer
	// Expect says how it has to end: "holds", or "violated", when each of its
	// properties by itself has to be refuted by something that is reachable.
	Expect string
	// Uncounted: TLC does not count how often each action is taken, which takes
	// several times as long where actions are made of many operators.
	Uncounted bool

	// Walks, when not 0, are random walks of so many Steps each in place of all
	// states, in a world that is too large for that.
	Walks, Steps int

	Spec       string
	Constants  []Constant
	Replaced   []Constant // constants and operators, by operators
	Invariants []string
	Properties []string // temporal ones
	Symmetry   string
	View       string // the part of a state by which TLC tells it from others
	Picture    string // the name of the picture that is made of its counterexample; see story.go
	Deadlock   bool
}

// Constant is a constant of a module with its value, as both are written.
type Constant struct{ Name, Value string }

// Module returns the name of the module that the configuration is for.
func (c *Config) Module() string {
	m, _, _ := strings.Cut(c.Name, ".")
	return m
}

// readConfigs reads all configurations of a folder, in the order of their names.
func readConfigs(dir string) ([]*Config, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.cfg"))
	if err != nil {
		return nil, err
	}
	var all []*Config
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			return nil, err
		}
		c, err := parseConfig(strings.TrimSuffix(filepath.Base(f), ".cfg"), string(text))
		if err != nil {
			return nil, err
		}
		all = append(all, c)
	}
	return all, nil
}

// parseConfig reads the part of TLC's grammar that this folder uses, line by
// line; anything else is an error, since TLC passes some mistakes over.
func parseConfig(name, text string) (*Config, error) {
	c := &Config{Name: name, Expect: "holds", Deadlock: true}
	section := ""
	for n, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		if comment, ok := strings.CutPrefix(line, `\*`); ok {
			c.note(strings.TrimSpace(comment))
			continue
		}
		first, rest, _ := strings.Cut(line, " ")
		rest = strings.TrimSpace(rest)
		switch first {
		case "":
			continue
		case "SPECIFICATION":
			c.Spec = rest
		case "SYMMETRY":
			c.Symmetry = rest
		case "CHECK_DEADLOCK":
			c.Deadlock = rest == "TRUE"
		case "CONSTANTS", "INVARIANTS", "PROPERTIES":
			section = first
			if rest != "" {
				return nil, fmt.Errorf("%s.cfg:%d: %s is followed by something: write one a line below it", name, n+1, first)
			}
		default:
			if !c.entry(section, line) {
				return nil, fmt.Errorf("%s.cfg:%d: %q is not understood", name, n+1, line)
			}
		}
	}
	return c, c.check()
}

// note reads a comment at the head.
func (c *Config) note(s string) {
	key, value, _ := strings.Cut(s, ": ")
	switch {
	case key == "lane":
		c.Lane = value
	case key == "expect":
		c.Expect = value
	case key == "walks":
		if n, err := fmt.Sscanf(value, "%d of %d steps", &c.Walks, &c.Steps); n != 2 || err != nil {
			c.Walks, c.Steps = -1, -1
		}
	case key == "picture":
		c.Picture = value
	case key == "actions" && value == "not counted":
		c.Uncounted = true
	case c.About == "":
		c.About = s
	case c.Lane == "":
		c.About += " " + s
	}
}

func (c *Config) entry(section, line string) bool {
	switch section {
	case "CONSTANTS":
		if name, value, ok := strings.Cut(line, " <- "); ok {
			c.Replaced = append(c.Replaced, Constant{strings.TrimSpace(name), strings.TrimSpace(value)})
			return true
		}
		name, value, ok := strings.Cut(line, " = ")
		if !ok {
			return false
		}
		c.Constants = append(c.Constants, Constant{strings.TrimSpace(name), strings.TrimSpace(value)})
		return true
	case "INVARIANTS":
		c.Invariants = append(c.Invariants, line)
	case "PROPERTIES":
		c.Properties = append(c.Properties, line)
	default:
		return false
	}
	return !strings.ContainsAny(line, " \t,")
}

func (c *Config) check() error {
	wrong := ""
	switch {
	case c.About == "":
		wrong = "has no comment that says what it is for"
	case c.Lane != "build" && c.Lane != "release":
		wrong = `has no comment "lane: build" or "lane: release"`
	case c.Expect != "holds" && c.Expect != "violated":
		wrong = `expects something else than "holds" or "violated"`
	case c.Spec == "":
		wrong = "has no SPECIFICATION"
	case len(c.Invariants)+len(c.Properties) == 0:
		wrong = "checks nothing"
	case c.Walks < 0 || c.Walks > 0 && (c.Steps < 1 || c.Expect != "holds" || len(c.Properties) > 0):
		wrong = `has no comment "walks: 100 of 50 steps", or no invariants alone that are to hold`
	case c.Picture != "" && (c.Expect != "violated" || len(c.Invariants)+len(c.Properties) != 1):
		wrong = "has a picture, and not one property that is to be violated"
	case c.Symmetry != "" && len(c.Properties) > 0:
		wrong = "has SYMMETRY, which can hide errors of temporal properties"
	}
	if wrong != "" {
		return fmt.Errorf("%s.cfg %s", c.Name, wrong)
	}
	return nil
}

// only returns c with a single property, so that no other one can take the
// credit for an error.
func (c *Config) only(property string) (*Config, error) {
	d := *c
	d.Invariants, d.Properties = nil, nil
	switch {
	case slices.Contains(c.Invariants, property):
		d.Invariants = []string{property}
	case slices.Contains(c.Properties, property):
		d.Properties = []string{property}
	default:
		return nil, fmt.Errorf("%s.cfg does not check %s", c.Name, property)
	}
	return &d, nil
}

// with returns c with another value of a constant that it has.
func (c *Config) with(name, value string) (*Config, error) {
	d := *c
	d.Constants = slices.Clone(c.Constants)
	i := slices.IndexFunc(d.Constants, func(k Constant) bool { return k.Name == name })
	if i < 0 {
		return nil, fmt.Errorf("%s.cfg has no constant %s", c.Name, name)
	}
	d.Constants[i].Value = value
	return &d, nil
}

// text returns c as TLC reads it.
func (c *Config) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "SPECIFICATION %s\n", c.Spec)
	if len(c.Constants) > 0 {
		b.WriteString("CONSTANTS\n")
	}
	for _, k := range c.Constants {
		fmt.Fprintf(&b, "  %s = %s\n", k.Name, k.Value)
	}
	for _, k := range c.Replaced {
		fmt.Fprintf(&b, "  %s <- %s\n", k.Name, k.Value)
	}
	for _, i := range c.Invariants {
		fmt.Fprintf(&b, "INVARIANT %s\n", i)
	}
	for _, p := range c.Properties {
		fmt.Fprintf(&b, "PROPERTY %s\n", p)
	}
	if c.Symmetry != "" {
		fmt.Fprintf(&b, "SYMMETRY %s\n", c.Symmetry)
	}
	if c.View != "" {
		fmt.Fprintf(&b, "VIEW %s\n", c.View)
	}
	if !c.Deadlock {
		b.WriteString("CHECK_DEADLOCK FALSE\n")
	}
	return b.String()
}
