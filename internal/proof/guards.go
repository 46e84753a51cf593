package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Guard is a condition of an action of a module, in one line.
type Guard struct {
	Action   string
	Line     int // from 0 on
	From, To int // in the line
	Text     string
}

var (
	definedRE = regexp.MustCompile(`^(?:LOCAL )?(\w+)(?:\([^)]*\))? ==`)
	nameRE    = regexp.MustCompile(`\w+`)
	primeRE   = regexp.MustCompile(`[\w\])]'|\bUNCHANGED\b`)
	openRE    = regexp.MustCompile(`^(?:\\E|\\A .*:\s*$|LET|IN\b|IF|THEN|ELSE|CASE|\[\])|(?:=>|:|==|\\/|=|,|\bIN|\bTHEN|\bELSE|\\cup)$`)
)

// definitions returns the lines of each definition of a module, by its name: those from its
// own to the next one that begins in the first column.
func definitions(lines []string) map[string][2]int {
	all := map[string][2]int{}
	name, from := "", 0
	for i, line := range append(lines, "=") {
		if line == "" || strings.HasPrefix(line, " ") {
			continue
		}
		if name != "" {
			all[name] = [2]int{from, i}
		}
		name, from = "", i
		if m := definedRE.FindStringSubmatch(line); m != nil {
			name = m[1]
		}
	}
	return all
}

// changesOf returns the definitions of a module that say something of the next state.
func changesOf(lines []string, defined map[string][2]int) map[string]bool {
	changes := map[string]bool{}
	for grew := true; grew; {
		grew = false
		for name, d := range defined {
			body := strings.Join(lines[d[0]:d[1]], "\n")
			if !changes[name] && (primeRE.MatchString(body) || slices.ContainsFunc(nameRE.FindAllString(body, -1), func(n string) bool { return changes[n] })) {
				changes[name], grew = true, true
			}
		}
	}
	return changes
}

// actionsOfNext returns the actions that a module's Next names; none without a Next.
func actionsOfNext(module string) (all []string) {
	lines := strings.Split(module, "\n")
	defined := definitions(lines)
	changes, next := changesOf(lines, defined), defined["Next"]
	for _, name := range nameRE.FindAllString(strings.Join(lines[next[0]:next[1]], "\n"), -1) {
		if changes[name] && name != "Next" && !slices.Contains(all, name) {
			all = append(all, name)
		}
	}
	return all
}

// guards returns the conditions of the actions in a module's Next: what stands between two
// signs of a conjunction in one line, says nothing of the next state, and is whole.
func guards(module string) (all []Guard) {
	lines := strings.Split(module, "\n")
	defined := definitions(lines)
	changes := changesOf(lines, defined)
	for _, name := range actionsOfNext(module) {
		d := defined[name]
		for i := d[0]; i < d[1]; i++ {
			for _, s := range conjunctsOf(lines[i]) {
				words := nameRE.FindAllString(s.Text, -1)
				if primeRE.MatchString(s.Text) || len(words) == 0 || slices.ContainsFunc(words, func(n string) bool { return changes[n] }) {
					continue
				}
				s.Action, s.Line = name, i
				if !slices.Contains(all, s) {
					all = append(all, s)
				}
			}
		}
	}
	return all
}

// conjunctsOf returns the parts of a line between signs of a conjunction, without those that
// are not whole.
func conjunctsOf(line string) (all []Guard) {
	if i := strings.Index(line, `\*`); i >= 0 {
		line = line[:i]
	}
	begin := 0
	if m := definedRE.FindStringIndex(line); m != nil {
		begin = m[1]
	} else if !strings.Contains(line, `/\`) {
		return nil
	} else if first := strings.Index(line, `/\`); strings.TrimSpace(line[:first]) == "" {
		begin = first + 2
	}
	depth, from := 0, begin
	add := func(to int) {
		part := line[from:to]
		trimmed := strings.TrimLeft(part, " ")
		trimmed = strings.TrimPrefix(trimmed, `\/ `)
		at := from + len(part) - len(trimmed)
		trimmed = strings.TrimRight(trimmed, " ")
		if depth == 0 && trimmed != "" && !openRE.MatchString(trimmed) {
			all = append(all, Guard{From: at, To: at + len(trimmed), Text: trimmed})
		}
	}
	for i := begin; i < len(line); i++ {
		switch {
		case strings.ContainsRune("([{", rune(line[i])) || strings.HasPrefix(line[i:], "<<"):
			depth++
		case strings.ContainsRune(")]}", rune(line[i])) || strings.HasPrefix(line[i:], ">>"):
			depth--
		case depth == 0 && strings.HasPrefix(line[i:], `/\`):
			add(i)
			i++
			from = i + 1
		}
		if strings.HasPrefix(line[i:], "<<") || strings.HasPrefix(line[i:], ">>") {
			i++
		}
	}
	add(len(line))
	return all
}

// without returns the module without a guard.
func (g Guard) without(module string) string {
	lines := strings.Split(module, "\n")
	line := lines[g.Line]
	lines[g.Line] = line[:g.From] + "TRUE" + line[g.To:]
	return strings.Join(lines, "\n")
}

// sweep takes away the guards of a module, one at a time, and says of each which property
// is refuted then, in the configurations of a build that hold. A guard that nothing refutes
// is named: it makes no difference in these worlds, where they have as many states without
// it, or nobody would see that it is missing.
func (k *Checker) sweep(ctx context.Context, module string, configs []*Config, pick *regexp.Regexp, jobs int) error {
	file := module + ".tla"
	text, err := os.ReadFile(filepath.Join(k.Modules, filepath.Clean(file)))
	if err != nil {
		return err
	}
	var worlds []*Config
	states := map[string]int64{}
	for _, c := range configs {
		if c.Module() != module || c.Lane != "build" || c.Expect != "holds" || c.Walks > 0 {
			continue
		}
		o, _, err := k.check(ctx, "sweep", c, false)
		if err != nil || o.Verdict != Holds {
			return fmt.Errorf("%s is %v: %w", c.Name, o, err)
		}
		worlds, states[c.Name] = append(worlds, c), o.Distinct
	}
	slices.SortFunc(worlds, func(x, y *Config) int { return int(states[x.Name] - states[y.Name]) })
	found := map[string]int{}
	all := slices.DeleteFunc(guards(string(text)), func(g Guard) bool { return !pick.MatchString(g.Action) })
	room, lines := make(chan struct{}, max(jobs, 1)), make(chan [2]string, len(all))
	for _, g := range all {
		go func() {
			room <- struct{}{}
			defer func() { <-room }()
			with := *k
			with.More = map[string][]byte{file: []byte(g.without(string(text)))}
			kind, how := with.withoutGuard(ctx, worlds, states)
			lines <- [2]string{kind, fmt.Sprintf("%-12s %s:%d %s: %s %s", kind, module, g.Line+1, g.Action, g.Text, how)}
		}()
	}
	for range all {
		line := <-lines
		if ctx.Err() != nil {
			return ctx.Err()
		}
		found[line[0]]++
		fmt.Println(line[1])
	}
	for _, kind := range slices.Sorted(maps.Keys(found)) {
		fmt.Printf("%s: %d of %d guards %s\n", module, found[kind], len(all), kind)
	}
	return ctx.Err()
}

// withoutGuard checks worlds until one of their properties is refuted.
func (k *Checker) withoutGuard(ctx context.Context, worlds []*Config, states map[string]int64) (kind, how string) {
	kind = "no difference"
	var more []string
	for _, c := range worlds {
		o, _, err := k.check(ctx, "sweep", c, false)
		switch {
		case err != nil:
			return "failed", err.Error()
		case o.Verdict == Violated:
			return "refuted", fmt.Sprintf("(%s, %s, %d states)", o.Property, c.Name, len(o.Trace))
		case o.Verdict == Failed:
			return "failed", "(" + strings.TrimSpace(o.Reason[:min(len(o.Reason), 160)]) + ")"
		case o.Verdict == Unended:
			kind = "NOT REFUTED"
			more = append(more, fmt.Sprintf("%s was stopped after %d states", c.Name, o.Distinct))
		case o.Distinct != states[c.Name]:
			kind = "NOT REFUTED"
			more = append(more, fmt.Sprintf("%s has %d states, not %d", c.Name, o.Distinct, states[c.Name]))
		}
	}
	return kind, strings.Join(more, "; ")
}
