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
	sliceTime  = 5 * time.Second
	maxPending = 4 // calls of unknown outcome in a slice
)

// act is what a call does to a mutex at one moment between its begin and its
// end.
type act struct {
	do    string // "take", "perhaps take", "free", "perhaps free"
	op    *Op
	token uint64
}

// mutex is the state of the model: who has it, and the highest token so far.
type mutex struct {
	owner Key
	held  bool
	token uint64
}

// model is a mutex with owners and growing tokens. What a process that was
// killed did is open: it may have happened at any time later, or not at all.
// The loss of a hold is an act of its own, some time after its claim ended.
var model = (&porcupine.NondeterministicModel{
	Init: func() []any { return []any{mutex{}} },
	Step: func(state, input, _ any) []any {
		m, a := state.(mutex), input.(act)
		switch a.do {
		case "take":
			if m.held || a.token > 0 && a.token <= m.token {
				return nil
			}
			return []any{mutex{a.op.Key, true, max(m.token, a.token)}}
		case "perhaps take":
			if m.held {
				return []any{m}
			}
			return []any{m, mutex{a.op.Key, true, m.token}}
		case "free":
			if !m.held || m.owner != a.op.Key {
				return nil
			}
		case "perhaps free":
			if !m.held || m.owner != a.op.Key {
				return []any{m}
			}
		}
		return []any{mutex{token: m.token}}
	},
}).ToModel()

// linear is C5, over the grants of a mutex that have ended. Any choice of whole
// holds out of a history that is linearizable is linearizable, so slices may be
// cut as is convenient.
func (c *Checker) linear(l *line) {
	slices.SortFunc(l.mutex, func(a, b *Op) int { return cmp.Compare(a.Granted, b.Granted) })
	for slice := range slices.Chunk(l.mutex, sliceSize) {
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
	l.mutex, l.unknown = nil, nil
}

func (c *Checker) slice(l *line, slice, pending []*Op) {
	var hist []porcupine.Operation
	add := func(a act, from, to int64) {
		hist = append(hist, porcupine.Operation{Input: a, Call: from, Return: max(from, to)})
	}
	const open = math.MaxInt64
	for _, op := range slice {
		token := op.Token
		if !c.rules.Tokens {
			token = 0 // of a store that promises none
		}
		add(act{"take", op, token}, op.Asked, op.Granted)
		switch {
		case op.Done > 0 && op.DoneErr == "":
			add(act{"free", op, 0}, op.Out, op.Done)
		case op.Out > 0 && (op.Told == 0 || op.Out < op.Told):
			// Unlock was called in good time and its outcome is unknown.
			add(act{"perhaps free", op, 0}, min(op.Out, op.until()), open)
		default:
			add(act{"perhaps free", op, 0}, op.until(), open)
		}
	}
	for _, op := range pending {
		add(act{"perhaps take", op, 0}, op.Asked, open)
		add(act{"perhaps free", op, 0}, op.Asked, open)
	}
	c.stats.Slices++
	switch porcupine.CheckOperationsTimeout(model, hist, sliceTime) {
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
		if b.Granted < freed || b.Asked > a.Granted && b.Token <= a.Token {
			return []*Op{a, b}
		}
	}
	return slices.Concat(slice, pending)[:min(4, len(slice))]
}
