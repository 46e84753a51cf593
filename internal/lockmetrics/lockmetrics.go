// Package lockmetrics decides how metrics name the events of locks, for packages
// otelholdfast and promholdfast alike, and counts them for lock servers and the
// Producer of otelholdfast.
package lockmetrics

import (
	"context"
	"errors"
	"maps"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/holdfast-go/holdfast"
)

// Result is the value of two attributes: the outcome, and the type of the error
// where one outcome has several.
type Result struct{ Outcome, ErrorType string }

// Waits are the results of calls that take a lock. WaitResult returns an index.
var Waits = [...]Result{
	{"acquired", ""}, {"held", ""}, {"timed_out", ""}, {"canceled", ""}, {"closed", ""},
	{"failed", "unavailable"}, {"failed", "unknown"}, {"failed", "refused"}, {"failed", "kind_mismatch"}, {"failed", "_OTHER"},
}

const (
	waitAcquired = iota
	waitHeld
	waitTimedOut
	waitCanceled
	waitClosed
	waitFailed
	waitKindMismatch = waitFailed + 3
	waitOther        = waitFailed + 4
)

// Holds are the results of holds. HoldResult returns an index.
var Holds = [...]Result{
	{"released", ""}, {"lost", "expired"}, {"lost", "gone"}, {"lost", "max_hold"}, {"closed", ""}, {"unconfirmed", ""},
}

var bounds = [...]float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 150, 300, 600}

// Buckets are the bounds of durations, in seconds.
var Buckets = bounds[:]

// Longest are the Buckets as durations: the longest of each bucket.
var Longest = longest()

// longest returns the bounds as durations, which are whole microseconds.
func longest() (longest [len(bounds)]time.Duration) {
	for i, b := range bounds {
		longest[i] = time.Duration(math.Round(b*1e6)) * time.Microsecond
	}
	return longest
}

// WaitResult returns the index in Waits of a call that ended with err. A refused
// Try is an outcome of its own; a wait that MaxWait ended has timed out.
func WaitResult(err error) int {
	if err == nil {
		return waitAcquired
	}
	if w, ok := errors.AsType[*holdfast.WaitError](err); ok {
		if errors.Is(w, holdfast.ErrMaxWait) || errors.Is(w, context.DeadlineExceeded) {
			return waitTimedOut
		}
		return waitCanceled
	}
	switch {
	case errors.Is(err, holdfast.ErrHeld):
		return waitHeld
	case errors.Is(err, holdfast.ErrClosed):
		return waitClosed
	case errors.Is(err, holdfast.ErrKindMismatch):
		return waitKindMismatch
	}
	switch ErrorType(err) {
	case "unavailable":
		return waitFailed
	case "unknown":
		return waitFailed + 1
	case "refused":
		return waitFailed + 2
	}
	return waitOther
}

// HoldResult returns the index in Holds of a hold that ended with err.
func HoldResult(err error) int {
	if err == nil {
		return 0
	}
	if lost, ok := errors.AsType[*holdfast.LostError](err); ok {
		switch lost.Reason {
		case holdfast.LossExpired:
			return 1
		case holdfast.LossGone:
			return 2
		}
		return 3
	}
	if errors.Is(err, holdfast.ErrClosed) {
		return 4
	}
	return 5
}

// ErrorType returns the type of a store's error: unavailable, unknown or
// refused; and "" if err is not a *holdfast.StoreError.
func ErrorType(err error) string {
	failed, ok := errors.AsType[*holdfast.StoreError](err)
	switch {
	case !ok:
		return ""
	case failed.Unavailable():
		return "unavailable"
	case failed.Unknown():
		return "unknown"
	}
	return "refused"
}

// MaxGroups bounds the number of groups, because each costs series.
const MaxGroups = 100

// OtherGroup is the group of the locks beyond MaxGroups.
const OtherGroup = "_other"

// Groups finds the instruments of a lock by its group and kind. A lookup of
// known ones allocates nothing and takes no mutex.
type Groups[T any] struct {
	groupOf func(name string) string
	create  func(group string, kind holdfast.Kind) *T

	known atomic.Pointer[map[string]*group[T]] // never changed once published
	last  [8]atomic.Pointer[group[T]]          // found last, by a name's first byte: a lock's events follow each other
	mu    sync.Mutex                           // of the writer
}

// group has the instruments of a group, by kind.
type group[T any] struct {
	name  string
	kinds [4]atomic.Pointer[T]
}

// has reports whether the part of a name before its first slash is the group's.
func (g *group[T]) has(name string) bool {
	n := len(g.name)
	return len(name) >= n && name[:n] == g.name && (len(name) == n || name[n] == '/')
}

// index returns the index of a kind. A kind that this package does not know
// counts as a mutex.
func index(k holdfast.Kind) int {
	switch k {
	case holdfast.KindReader:
		return 1
	case holdfast.KindWriter:
		return 2
	case holdfast.KindPermits:
		return 3
	}
	return 0
}

// NewGroups returns Groups whose instruments create makes. groupOf returns a
// name's group; nil is the part before the first slash. The groups that create and
// Each see are valid UTF-8.
func NewGroups[T any](groupOf func(name string) string, create func(group string, kind holdfast.Kind) *T) *Groups[T] {
	g := &Groups[T]{groupOf: groupOf, create: create}
	g.known.Store(&map[string]*group[T]{})
	return g
}

// Of returns the instruments of an event.
func (g *Groups[T]) Of(e *holdfast.Event) *T {
	last := &g.last[0]
	if len(e.Name) > 0 {
		last = &g.last[e.Name[0]%8]
	}
	in := last.Load()
	if g.groupOf != nil {
		if name := g.groupOf(e.Name); in == nil || name != in.name {
			in = g.find(name)
			last.Store(in)
		}
	} else if in == nil || !in.has(e.Name) {
		name, _, _ := strings.Cut(e.Name, "/")
		in = g.find(name)
		last.Store(in)
	}
	at := &in.kinds[index(e.Kind)]
	if t := at.Load(); t != nil {
		return t
	}
	return g.fill(in, at, e.Kind)
}

// find returns a group. The user's function may return any bytes, and clients of metrics
// take none but valid text: one panics, others refuse all series with the bad one. So all
// known groups are valid, and a name that is among them need not be checked.
func (g *Groups[T]) find(name string) *group[T] {
	known := *g.known.Load()
	in := known[name]
	if in == nil && !utf8.ValidString(name) {
		name = strings.ToValidUTF8(name, string(utf8.RuneError))
		in = known[name]
	}
	if in == nil && len(known) > MaxGroups {
		in = known[OtherGroup]
	}
	if in == nil {
		in = g.add(name)
	}
	return in
}

// add publishes a group of a valid name, which is OtherGroup once there are MaxGroups.
func (g *Groups[T]) add(name string) *group[T] {
	g.mu.Lock()
	defer g.mu.Unlock()
	old := *g.known.Load()
	if old[name] == nil && len(old) >= MaxGroups {
		name = OtherGroup
	}
	if in := old[name]; in != nil {
		return in
	}
	in := &group[T]{name: strings.Clone(name)}
	next := maps.Clone(old)
	next[in.name] = in
	g.known.Store(&next)
	return in
}

// fill creates the instruments of one kind.
func (g *Groups[T]) fill(in *group[T], at *atomic.Pointer[T], kind holdfast.Kind) *T {
	g.mu.Lock()
	defer g.mu.Unlock()
	if t := at.Load(); t != nil {
		return t
	}
	t := g.create(in.name, kind)
	at.Store(t)
	return t
}

// Each calls f for the instruments of each group and kind.
func (g *Groups[T]) Each(f func(*T)) {
	for _, in := range *g.known.Load() {
		for i := range in.kinds {
			if t := in.kinds[i].Load(); t != nil {
				f(t)
			}
		}
	}
}
