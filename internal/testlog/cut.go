package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// span is the run of a test that has begun and not ended.
type span struct {
	since  time.Time
	paused bool // the test waits for its turn among the parallel tests
}

// clock records which tests are running, so that they can be named if a panic,
// a time-out or the end of its process cuts their run.
func (l *log) clock(e event) {
	at := id{e.Package, e.Test}
	if !e.Time.IsZero() {
		l.last = e.Time
	}
	if e.Test == "" {
		return
	}
	switch e.Action {
	case "run":
		l.going[at] = span{since: e.Time}
	case "pause", "cont":
		if s, ok := l.going[at]; ok {
			s.paused = e.Action == "pause"
			l.going[at] = s
		}
	case "pass", "fail", "skip":
		delete(l.going, at)
	}
}

// endCut counts the tests of a package that were running when the package
// ended, prints their output and names them. It does not name a test whose
// subtest it names, nor a test that was waiting for its turn. It prints the
// cause and the goroutines, too: the go command takes them for the output of
// any test, also of one that has ended.
func (l *log) endCut(pkg string) {
	var cut []id
	for at, s := range l.going {
		if at.pkg == pkg && !s.paused {
			cut = append(cut, at)
		}
	}
	slices.SortFunc(cut, func(a, b id) int { return strings.Compare(a.test, b.test) })
	for _, at := range cut {
		l.print(l.output[at])
		delete(l.output, at)
	}
	for at := range l.output {
		if at.pkg == pkg && at.test != "" {
			l.print(l.output[at])
			delete(l.output, at)
		}
	}
	for _, at := range cut {
		if slices.ContainsFunc(cut, func(other id) bool { return strings.HasPrefix(other.test, at.test+"/") }) {
			continue
		}
		l.failed++
		l.loud[pkg] = true
		l.fails = append(l.fails, fmt.Sprintf("%s %s, which was running for %v when the run of its package was cut", pkg, at.test, l.last.Sub(l.going[at].since).Round(time.Second/10)))
	}
	maps.DeleteFunc(l.going, func(at id, _ span) bool { return at.pkg == pkg })
}

// endOpen ends the packages without an end event, because the go command itself
// was ended.
func (l *log) endOpen() {
	open := make(map[string]bool)
	for at := range l.going {
		open[at.pkg] = true
	}
	for _, pkg := range slices.Sorted(maps.Keys(open)) {
		l.broken = true
		l.endCut(pkg)
		fmt.Fprintf(l.w, "FAIL\t%s\tended without a result\n", pkg)
	}
}
