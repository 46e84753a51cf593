package check

import (
	"fmt"
	"math"
	"strings"
	"time"
)

// Key names a call: the process, its life, and the number of the call.
type Key struct {
	P, K int
	N    int64
}

// life is one run of a process.
type life struct{ p, k int }

func (k Key) life() life { return life{k.P, k.K} }

// Op is one call that takes a lock, and the hold that came of it. Times are 0
// for what did not happen or is not known.
type Op struct {
	Key
	G            int
	Name         string
	Units, Limit int64
	Try, Bound   bool
	Alone        bool
	In           int64 // the call in whose hold it is nested, 0 for none

	Asked, Waiting, Granted int64
	Token                   uint64
	Claim                   int64 // the last known end of the claim
	Told                    int64
	ToldToken               uint64
	ToldWhy                 string
	Out, Done               int64
	OutErr, DoneErr         string // what Err said before Unlock, and Unlock itself
	Killed                  int64

	refused int64 // when the guard refused a write of it
	by      uint64
	ordered bool // C3 has seen it
	judged  bool // C4 has: calm counts
	calm    bool
}

func (o *Op) exclusive() bool { return o.Units == o.Limit }

// owner is who holds: what is nested is held by the first.
func (o *Op) owner() Key {
	k := o.Key
	if o.In > 0 {
		k.N = o.In
	}
	return k
}

// final says whether nothing about the call can change.
func (o *Op) final() bool { return o.Done > 0 || o.Killed > 0 }

// until is the end of the held interval: what the user was entitled to believe.
// An end that is not known yet counts as far as it is known.
func (o *Op) until() int64 {
	end := int64(math.MaxInt64)
	for _, t := range []int64{o.Out, o.Claim, o.Told, o.Killed} {
		if t > 0 {
			end = min(end, t)
		}
	}
	return end
}

// column is the call as people compare it with another.
func (o *Op) column(zero int64) []string {
	kind := "shared"
	if o.exclusive() {
		kind = "exclusive"
	}
	lines := []string{
		fmt.Sprintf("process %d.%d goroutine %d call %d", o.P, o.K, o.G, o.N),
		fmt.Sprintf("%s, %d of %d", kind, o.Units, o.Limit),
	}
	add := func(what string, t int64, more string) {
		if t > 0 {
			lines = append(lines, strings.TrimSpace(fmt.Sprintf("%-10s %12.6f %s", what, time.Duration(t-zero).Seconds(), more)))
		}
	}
	add("asked", o.Asked, "")
	add("waited", o.Waiting, "")
	add("got", o.Granted, fmt.Sprintf("token %d", o.Token))
	add("claim ends", o.Claim, "")
	add("told", o.Told, o.ToldWhy)
	add("refused", o.refused, fmt.Sprintf("highest %d", o.by))
	add("unlock", o.Out, o.OutErr)
	add("unlocked", o.Done, o.DoneErr)
	add("killed", o.Killed, "")
	return lines
}

// beside writes columns beside each other.
func beside(zero int64, ops []*Op) string {
	var b strings.Builder
	for len(ops) > 0 {
		pair := ops[:min(2, len(ops))]
		ops = ops[len(pair):]
		left := pair[0].column(zero)
		var right []string
		if len(pair) == 2 {
			right = pair[1].column(zero)
		}
		for i := range max(len(left), len(right)) {
			var l, r string
			if i < len(left) {
				l = left[i]
			}
			if i < len(right) {
				r = right[i]
			}
			b.WriteString(strings.TrimRight(fmt.Sprintf("    %-48s| %s", l, r), " |") + "\n")
		}
	}
	return b.String()
}
