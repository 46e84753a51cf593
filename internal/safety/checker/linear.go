package checker

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
	sharedSize = 30 // grants of locks with several holders: there are more orders to try
	sliceTime  = 5 * time.Second
	maxPending = 4 // calls of unknown outcome in a slice
)

// checkLinear applies C5 to the ended grants of a lock. Any choice of whole
// holds from a linearizable history is linearizable, so slices may be cut
// anywhere.
func (c *Checker) checkLinear(l *lockRecord) {
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
		c.checkSlice(l, slice, pending)
	}
	l.ended, l.unknown = nil, nil
}

func (c *Checker) checkSlice(l *lockRecord, slice, pending []*Op) {
	var hist []porcupine.Operation
	add := func(a lockAct, from, to int64) {
		hist = append(hist, porcupine.Operation{Input: a, Call: from, Return: max(from, to)})
	}
	const open = math.MaxInt64
	for _, op := range slice {
		a := lockAct{"take", op.owner(), op.Units, op.Token}
		add(a, op.Asked, op.Granted)
		a.do = "perhaps free"
		switch {
		case op.Done > 0 && op.DoneErr == "":
			a.do = "free"
			add(a, op.Out, op.Done)
		case op.Out > 0 && (op.Told == 0 || op.Out < op.Told):
			// Unlock was called in time, and its outcome is unknown.
			add(a, min(op.Out, op.until()), open)
		default:
			add(a, op.until(), open)
		}
	}
	for _, op := range pending {
		add(lockAct{"perhaps take", op.owner(), op.Units, 0}, op.Asked, open)
		add(lockAct{"perhaps free", op.owner(), op.Units, 0}, op.Asked, open)
	}
	// The tokens of a semaphore distinguish grants, but have no order.
	m := model{limit: slice[0].Limit, reentrant: true,
		fenced: c.rules.Tokens && (slice[0].Limit == 1 || slice[0].Limit >= semaphores)}
	c.stats.Slices++
	switch porcupine.CheckOperationsTimeout(m.porcupine(), hist, sliceTime) {
	case porcupine.Unknown:
		c.stats.Undecided++
	case porcupine.Illegal:
		ops := shrink(slice, pending)
		c.violations.add("C5", l.name, ops[0].Granted,
			fmt.Sprintf("%d holds that no order of grants and releases explains", len(ops)), ops...)
	}
}

// shrink returns two neighbours that contradict each other, if there are two,
// and otherwise the first calls of the slice.
func shrink(slice, pending []*Op) []*Op {
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
