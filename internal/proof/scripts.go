package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/holdfast-go/holdfast/internal/safety/trace"
)

// soundScripts are the stores without a flaw on which the scripts of package trace are
// played: RedLock, for which soundNodes stand, and stores with an order.
var soundScripts = []string{"memory", "cut=memory", soundNodes, "cut=" + soundNodes}

// scriptOf returns the script that shows the flaw of a store, or a bug, of that name.
func scriptOf(flawed string) string {
	_, flaw, _ := strings.Cut(flawed, "flaw=")
	return flaw
}

// holdScripts holds the requests of scripts against the specification, which let a store
// with a flaw show it whatever becomes of times: those of each flaw of tortureFlaws are
// refused, and with bugs those of each of redlockBugs; on a store without a flaw no
// script's are.
func (k *Checker) holdScripts(ctx context.Context, bugs bool) (wrong []string, err error) {
	var names []string
	scripts := map[string]bool{}
	for _, flaw := range tortureFlaws {
		names = append(names, flaw+"@"+scriptOf(flaw))
		scripts[scriptOf(flaw)] = true
	}
	for _, bug := range redlockBugs {
		scripts[scriptOf(bug.name)] = true
	}
	for _, store := range soundScripts {
		for _, script := range slices.Sorted(maps.Keys(scripts)) {
			if script != minority || strings.Contains(store, soundNodes) {
				names = append(names, store+"@"+script)
			}
		}
	}
	recorded, err := recordScripts(ctx, names, "")
	if err != nil {
		return nil, err
	}
	for _, bug := range redlockBugs {
		if !bugs {
			break
		}
		name := bug.nodes + "@" + scriptOf(bug.name)
		bad, err := recordChanged(ctx, bug.file, bug.is, bug.was, func(overlay string) (map[string][]trace.Trace, error) {
			return recordScripts(ctx, []string{name}, overlay)
		})
		if err != nil {
			return nil, err
		}
		recorded[bug.name+"@"+scriptOf(bug.name)] = bad[name]
	}
	refused := map[string]*Refusal{}
	for _, unfair := range []bool{false, true} {
		here := map[string][]trace.Trace{}
		for name, traces := range recorded {
			if strings.Contains(name, soundNodes) == unfair {
				here[name] = traces
			}
		}
		loose := *k
		loose.Loose, loose.Unfair = true, unfair
		r, err := loose.refusedOf(ctx, fmt.Sprintf("scripts-%v", unfair), here, false)
		if err != nil {
			return nil, err
		}
		maps.Copy(refused, r)
	}
	sound, flawed, accepted := 0, 0, 0
	for _, name := range slices.Sorted(maps.Keys(recorded)) {
		store, _, _ := strings.Cut(name, "@")
		r := refused[name]
		if slices.Contains(soundScripts, store) {
			if sound++; r != nil {
				wrong = append(wrong, name+": "+r.String())
			}
			continue
		}
		if flawed++; r == nil {
			wrong = append(wrong, name+": the script shows the flaw, and is accepted")
			accepted++
		}
	}
	fmt.Printf("%-45s %d: %d refused of %d with a flaw\n", "scripts", sound+flawed, flawed-accepted, flawed)
	return wrong, nil
}

// recordScripts plays scripts, STORE@SCRIPT, and returns their traces by that name.
func recordScripts(ctx context.Context, names []string, overlay string) (map[string][]trace.Trace, error) {
	all := strings.Join(names, ",")
	return recordBy(ctx, ".", "./internal/safety/trace", all, []string{"-run", "^TestRecordScripts$", "-overlay", overlay, "-trace.scripts", all}, nil)
}
