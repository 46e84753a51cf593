package check

import (
	"cmp"
	"slices"
	"strings"

	"github.com/anishathalye/porcupine"
)

// model is a kind of lock as C5 sees it, after the models of Hazelcast's Jepsen
// suite. All are aware of owners: only who holds can release.
type model struct {
	limit     int64 // 1 is a mutex, 2^30 a read/write lock, else a semaphore's size
	reentrant bool  // who holds may take it again, and holds until it has released as often
	fenced    bool  // tokens grow with exclusive grants; nested ones have the token of the first
}

// act is what a call does to a lock at one moment between its begin and its
// end. What a process that was killed did is open: it may have happened at any
// time later, or not at all. The loss of a hold is an act of its own, some time
// after its claim ended.
type act struct {
	do    string // "take", "perhaps take", "free", "perhaps free"
	owner Key
	units int64
	token uint64 // 0 when it is not known, or the store promises none
}

// holding is one who holds.
type holding struct {
	owner Key
	units int64
	times int64
	token uint64
}

// locked is the state of a lock: who holds it, in the order of their names, and
// the highest tokens so far.
type locked struct {
	who            []holding
	exclusive, all uint64
}

func (s locked) equal(t locked) bool {
	return s.exclusive == t.exclusive && s.all == t.all && slices.Equal(s.who, t.who)
}

func (s locked) find(owner Key) int {
	return slices.IndexFunc(s.who, func(h holding) bool { return h.owner == owner })
}

func (k Key) compare(l Key) int {
	return cmp.Or(cmp.Compare(k.P, l.P), cmp.Compare(k.K, l.K), cmp.Compare(k.N, l.N))
}

// take returns the state after a grant, and whether it could be.
func (m model) take(s locked, a act) (locked, bool) {
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

// free returns the state after a release, and whether there was one.
func (m model) free(s locked, a act) (locked, bool) {
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
func (m model) step(s locked, a act) []any {
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

// porcupine is the model as Porcupine takes it.
func (m model) porcupine() porcupine.Model {
	return (&porcupine.NondeterministicModel{
		Init:  func() []any { return []any{locked{}} },
		Step:  func(state, input, _ any) []any { return m.step(state.(locked), input.(act)) },
		Equal: func(s, t any) bool { return s.(locked).equal(t.(locked)) },
	}).ToModel()
}
