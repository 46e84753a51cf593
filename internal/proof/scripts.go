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
var soundScripts = []string{"memory", "cut=memory", soundNodes, "cut=" + soundNodes, passingScripts, apartScripts}

// passingScripts is a store that passes over a waiter whose client has no connection for
// pushes, and grants the one that came last.
const passingScripts = "cut=passing"

// apartScripts is a store in which the ticket that a Join replaces leaves by a request of
// its own.
const apartScripts = "cut=apart"

// silence are the scripts in which something happens that no request shows by itself.
var silence = []string{"a lapse", passedOver}

// passedOver is the script of a waiter without a connection for pushes.
const passedOver = "passed over"

// soundness are the scripts that show no flaw: a push that comes after the turns of later
// tickets, Joins that fail and let the next ticket hold, and a hold that is told after that
// of a later ticket.
var soundness = []string{"a late push", "a lost replacement", failedReplacement, twoTogether, lateRepetition, halfReplacement}

const (
	halfReplacement   = "half a replacement"         // the Leave is carried out, and the Join is not
	failedReplacement = "a failed replacement"       // a Join that no node of RedLock carries out
	twoTogether       = "two together"               // by a lock that two hold, which RedLock has not
	lateRepetition    = "a repetition after the end" // of a place, which RedLock notices later
)

// playedOn reports whether a script can be played on a store without a flaw.
func playedOn(script, store string) bool {
	switch script {
	case minority, failedReplacement:
		return strings.Contains(store, soundNodes)
	case twoTogether, lateRepetition:
		return !strings.Contains(store, soundNodes) && store != passingScripts && store != apartScripts
	case passedOver:
		return store == passingScripts
	case halfReplacement:
		return store == apartScripts
	}
	return store != passingScripts && store != apartScripts
}

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
	for _, script := range slices.Concat(soundness, silence) {
		scripts[script] = true
	}
	for _, flaw := range tortureFlaws {
		names = append(names, flaw+"@"+scriptOf(flaw))
		scripts[scriptOf(flaw)] = true
	}
	for _, bug := range redlockBugs {
		scripts[scriptOf(bug.name)] = true
	}
	for _, store := range soundScripts {
		for _, script := range slices.Sorted(maps.Keys(scripts)) {
			if playedOn(script, store) {
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
	silent, err := k.silentActions()
	if err != nil {
		return nil, err
	}
	took, needed := map[string]int{}, map[string]int{}
	for _, w := range []struct{ unfair, passes, apart bool }{{}, {unfair: true}, {passes: true}, {apart: true}} {
		loose := *k
		loose.Loose, loose.Unfair, loose.Passes, loose.Apart = true, w.unfair, w.passes, w.apart
		sound, flawed := map[string][]trace.Trace{}, map[string][]trace.Trace{}
		for name, traces := range recorded {
			store, _, _ := strings.Cut(name, "@")
			switch {
			case strings.Contains(name, soundNodes) != w.unfair || (store == passingScripts) != w.passes || (store == apartScripts) != w.apart:
			case slices.Contains(soundScripts, store):
				sound[name] = traces
			default:
				flawed[name] = traces
			}
		}
		part := fmt.Sprintf("%v-%v-%v", w.unfair, w.passes, w.apart)
		r, _, err := loose.refusedOf(ctx, "scripts-"+part, flawed, false)
		if err != nil {
			return nil, err
		}
		maps.Copy(refused, r)
		r, a, err := loose.refusedOf(ctx, "scripts-sound-"+part, sound, false)
		if err != nil {
			return nil, err
		}
		maps.Copy(refused, r)
		if w.apart { // where it is one request, half of it is a mistake
			one := loose
			one.Apart = false
			r, _, err := one.refusedOf(ctx, "scripts-one-"+part, sound, false)
			if err != nil {
				return nil, err
			}
			for name := range sound {
				if r[name] == nil {
					wrong = append(wrong, name+": the script is accepted of a store that replaces in one request")
				}
			}
		}
		if !k.Needs {
			continue
		}
		if err := loose.needsSilent(ctx, a, silent, took, needed); err != nil {
			return nil, err
		}
	}
	for _, action := range silent {
		if !k.Needs {
			break
		}
		if needed[action] == 0 {
			wrong = append(wrong, fmt.Sprintf("no script needs %s of module Trace: %d take it, and are accepted without it", action, took[action]))
		}
		fmt.Printf("%-45s needed by %d of %d accepted scripts that take it\n", "silent: "+action, needed[action], took[action])
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

// needsSilent counts, by silent action, the accepted traces that took it, and those of them
// that are refused where it cannot be taken. An action that none needs may only allow too much.
func (k *Checker) needsSilent(ctx context.Context, a *Accepted, silent []string, took, needed map[string]int) error {
	for _, action := range silent {
		var traces []trace.Trace
		for _, t := range a.Taken[action] {
			traces = append(traces, *t)
		}
		without := *k
		without.Without = action
		b, err := without.checkTraces(ctx, "without-"+action, traces, false)
		if err != nil {
			return err
		}
		took[action] += len(traces)
		needed[action] += len(b.Refused)
	}
	return nil
}

// recordCoreScripts plays a script of the core, or all without a name, and returns their
// traces by their names.
func recordCoreScripts(ctx context.Context, script, overlay string) (map[string][]trace.Trace, error) {
	return recordBy(ctx, "", ".", "./internal/safety/trace", "scripts of the core", []string{"-run", "^TestRecordCoreScripts$", "-overlay", overlay, "-trace.core-script", script}, nil)
}

// recordScripts plays scripts, STORE@SCRIPT, and returns their traces by that name.
func recordScripts(ctx context.Context, names []string, overlay string) (map[string][]trace.Trace, error) {
	all := strings.Join(names, ",")
	return recordBy(ctx, "", ".", "./internal/safety/trace", all, []string{"-run", "^TestRecordScripts$", "-overlay", overlay, "-trace.scripts", all}, nil)
}
