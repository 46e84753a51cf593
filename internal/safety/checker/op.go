package checker

import (
	"fmt"
	"math"
	"strings"
	"time"
)

// Key identifies a call: the process, its life, and the number of the call.
type Key struct {
	P, K int
	N    int64
}

// life is one run of a process.
type life struct{ p, k int }

func (k Key) life() life { return life{k.P, k.K} }

// Op is one call that takes a lock, together with its hold. A time is 0 if the
// event did not happen or is not known.
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
	Stopped                 int64 // the client itself ended the hold while its function ran
	Out, Done               int64
	OutErr, DoneErr         string // the errors of Err before Unlock, and of Unlock itself
	Killed                  int64

	refused int64 // the time at which the guard refused a write of the hold
	by      uint64
	ordered bool // C3 has seen it
	judged  bool // C4 has seen it: calm counts
	calm    bool
}

func (o *Op) exclusive() bool { return o.Units == o.Limit }

// owner returns the key of the holder: a nested hold belongs to the first call.
func (o *Op) owner() Key {
	k := o.Key
	if o.In > 0 {
		k.N = o.In
	}
	return k
}

// final reports whether the call can no longer change.
func (o *Op) final() bool { return o.Done > 0 || o.Killed > 0 }

// until returns the end of the held interval, in which the user was entitled to
// rely on the hold. If the end is not known yet, the known bounds count.
func (o *Op) until() int64 {
	end := int64(math.MaxInt64)
	for _, t := range []int64{o.Out, o.Claim, o.Told, o.Stopped, o.Killed} {
		if t > 0 {
			end = min(end, t)
		}
	}
	return end
}

// functionEnd returns the end of the interval in which the protected function
// ran and was entitled to be alone. A function whose hold its own client ended
// may clean up until it returns; a function whose hold was lost may not.
func (o *Op) functionEnd() int64 {
	if o.Stopped == 0 || o.Told > 0 || o.OutErr == ErrLost || o.DoneErr == ErrLost {
		return o.until()
	}
	end := int64(math.MaxInt64)
	for _, t := range []int64{o.Out, o.Killed} {
		if t > 0 {
			end = min(end, t)
		}
	}
	return end
}

// columnLines returns the call as a column, to be compared with another.
func (o *Op) columnLines(zero int64) []string {
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
	add("stopped", o.Stopped, "")
	add("unlock", o.Out, o.OutErr)
	add("unlocked", o.Done, o.DoneErr)
	add("killed", o.Killed, "")
	return lines
}

// sideBySide returns the columns of the calls side by side.
func sideBySide(zero int64, ops []*Op) string {
	var b strings.Builder
	for len(ops) > 0 {
		pair := ops[:min(2, len(ops))]
		ops = ops[len(pair):]
		left := pair[0].columnLines(zero)
		var right []string
		if len(pair) == 2 {
			right = pair[1].columnLines(zero)
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
