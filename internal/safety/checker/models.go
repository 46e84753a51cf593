package checker

import (
	"cmp"
	"slices"
	"strings"

	"github.com/anishathalye/porcupine"
)

// model is a kind of lock for C5, after the models of Hazelcast's Jepsen suite.
// All models know owners: only a holder can release.
type model struct {
	limit     int64 // 1 is a mutex, 2^30 a read/write lock, else a semaphore's size
	reentrant bool  // a holder may take the lock again, and holds until it has released as often
	fenced    bool  // tokens grow with exclusive grants; nested ones have the token of the first
}

// lockAct is the effect of a call on a lock at one moment between the call's
// begin and its end. The act of a killed process is open: it may happen at any
// later time, or not at all. The loss of a hold is an act of its own, some time
// after its claim ended.
type lockAct struct {
	do    string // "take", "perhaps take", "free", "perhaps free"
	owner Key
	units int64
	token uint64 // 0 if it is not known, or the store promises no tokens
}

// holding is the part of one holder.
type holding struct {
	owner Key
	units int64
	times int64
	token uint64
}

// lockState is the state of a lock: its holders in the order of their keys, and
// the highest tokens so far.
type lockState struct {
	who            []holding
	exclusive, all uint64
}

func (s lockState) equal(t lockState) bool {
	return s.exclusive == t.exclusive && s.all == t.all && slices.Equal(s.who, t.who)
}

func (s lockState) find(owner Key) int {
	return slices.IndexFunc(s.who, func(h holding) bool { return h.owner == owner })
}

func (k Key) compare(l Key) int {
	return cmp.Or(cmp.Compare(k.P, l.P), cmp.Compare(k.K, l.K), cmp.Compare(k.N, l.N))
}

// take returns the state after a grant, and whether the grant is possible.
func (m model) take(s lockState, a lockAct) (lockState, bool) {
	if i := s.find(a.owner); i >= 0 {
		h := s.who[i]
		if !m.reentrant || h.units != a.units || m.fenced && a.token > 0 && a.token != h.token {
			return s, false
		}
		s.who = slices.Clone(s.who)
		s.who[i].times++
		return s, true
	}
	used := a.units
	for _, h := range s.who {
		used += h.units
	}
	if used > m.limit {
		return s, false
	}
	if m.fenced && a.token > 0 {
		least := s.exclusive
		if a.units == m.limit {
			least = s.all
		}
		if a.token <= least {
			return s, false
		}
		s.all = max(s.all, a.token)
		if a.units == m.limit {
			s.exclusive = a.token
		}
	}
	at, _ := slices.BinarySearchFunc(s.who, a.owner, func(h holding, k Key) int { return h.owner.compare(k) })
	s.who = slices.Insert(slices.Clone(s.who), at, holding{a.owner, a.units, 1, a.token})
	return s, true
}

// free returns the state after a release, and whether the release is possible.
func (m model) free(s lockState, a lockAct) (lockState, bool) {
	i := s.find(a.owner)
	if i < 0 {
		return s, false
	}
	s.who = slices.Clone(s.who)
	if s.who[i].times--; s.who[i].times == 0 {
		s.who = slices.Delete(s.who, i, i+1)
	}
	return s, true
}

// step returns the states that an act may lead to.
func (m model) step(s lockState, a lockAct) []any {
	next, ok := s, false
	if strings.HasSuffix(a.do, "take") {
		next, ok = m.take(s, a)
	} else {
		next, ok = m.free(s, a)
	}
	switch {
	case a.do == "perhaps take" && ok:
		return []any{s, next}
	case ok:
		return []any{next}
	case strings.HasPrefix(a.do, "perhaps"):
		return []any{s}
	}
	return nil
}

// porcupine returns the model in the form of package porcupine.
func (m model) porcupine() porcupine.Model {
	return (&porcupine.NondeterministicModel{
		Init:  func() []any { return []any{lockState{}} },
		Step:  func(state, input, _ any) []any { return m.step(state.(lockState), input.(lockAct)) },
		Equal: func(s, t any) bool { return s.(lockState).equal(t.(lockState)) },
	}).ToModel()
}
