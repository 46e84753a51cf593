package check

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

const (
	sliceSize  = 60 // grants
	sharedSize = 30 // of locks that several may hold: there are more orders to try
	sliceTime  = 5 * time.Second
	maxPending = 4 // calls of unknown outcome in a slice
)

// linear is C5, over the grants of a lock that have ended. Any choice of whole
// holds out of a history that is linearizable is linearizable, so slices may be
// cut as is convenient.
func (c *Checker) linear(l *line) {
	slices.SortFunc(l.ended, func(a, b *Op) int { return cmp.Compare(a.Granted, b.Granted) })
	size := sliceSize
	if len(l.ended) > 0 && l.ended[0].Limit > 1 {
		size = sharedSize
	}
	for slice := range slices.Chunk(l.ended, size) {
		if len(slice) == 0 {
			continue
		}
		from, to := slice[0].Asked, slice[len(slice)-1].Granted
		var pending []*Op
		for _, op := range l.unknown {
			if op.Asked >= from && op.Asked < to && len(pending) < maxPending {
				pending = append(pending, op)
			}
		}
		c.slice(l, slice, pending)
	}
	l.ended, l.unknown = nil, nil
}

func (c *Checker) slice(l *line, slice, pending []*Op) {
	var hist []porcupine.Operation
	add := func(a act, from, to int64) {
		hist = append(hist, porcupine.Operation{Input: a, Call: from, Return: max(from, to)})
	}
	const open = math.MaxInt64
	for _, op := range slice {
		a := act{"take", op.owner(), op.Units, op.Token}
		add(a, op.Asked, op.Granted)
		a.do = "perhaps free"
		switch {
		case op.Done > 0 && op.DoneErr == "":
			a.do = "free"
			add(a, op.Out, op.Done)
		case op.Out > 0 && (op.Told == 0 || op.Out < op.Told):
			// Unlock was called in good time and its outcome is unknown.
			add(a, min(op.Out, op.until()), open)
		default:
			add(a, op.until(), open)
		}
	}
	for _, op := range pending {
		add(act{"perhaps take", op.owner(), op.Units, 0}, op.Asked, open)
		add(act{"perhaps free", op.owner(), op.Units, 0}, op.Asked, open)
	}
	// The tokens of a semaphore tell grants apart, and do not order them.
	m := model{limit: slice[0].Limit, reentrant: true,
		fenced: c.rules.Tokens && (slice[0].Limit == 1 || slice[0].Limit >= semaphores)}
	c.stats.Slices++
	switch porcupine.CheckOperationsTimeout(m.porcupine(), hist, sliceTime) {
	case porcupine.Unknown:
		c.stats.Undecided++
	case porcupine.Illegal:
		ops := c.shrink(slice, pending)
		c.violate("C5", l.name, ops[0].Granted,
			fmt.Sprintf("%d holds that no order of grants and releases explains", len(ops)), ops...)
	}
}

// shrink finds two neighbours that contradict each other, if there are two.
func (c *Checker) shrink(slice, pending []*Op) []*Op {
	for i := 1; i < len(slice); i++ {
		a, b := slice[i-1], slice[i]
		freed := a.until()
		if a.Done > 0 && a.DoneErr == "" {
			freed = a.Out
		}
		if b.Granted < freed && a.Units+b.Units > a.Limit || b.Asked > a.Granted && a.exclusive() && b.Token <= a.Token {
			return []*Op{a, b}
		}
	}
	return slices.Concat(slice, pending)[:min(4, len(slice))]
}
