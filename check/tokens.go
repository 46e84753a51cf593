package check

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"sort"
)

// floor says that the greatest token of exclusive and of all grants that had
// returned by a time.
type floor struct {
	at             int64
	exclusive, all uint64
}

// tokens is C3. Grants are taken in the order in which they returned. Whoever
// asked after a grant had returned must have a greater token: exclusive ones
// than everybody, shared ones than exclusive ones. Those of semaphores only
// tell grants apart.
func (c *Checker) tokens(l *line, t, oldest int64) {
	var fresh []*Op
	for _, op := range l.live {
		if !op.ordered && op.Granted < t {
			op.ordered = true
			fresh = append(fresh, op)
		}
	}
	if !c.rules.Tokens {
		return
	}
	slices.SortFunc(fresh, func(a, b *Op) int { return cmp.Compare(a.Granted, b.Granted) })
	for _, op := range fresh {
		if op.Limit != 1 && op.Limit < semaphores {
			continue
		}
		if op.In > 0 {
			c.nested(l, op)
			continue
		}
		if op.Token == 0 {
			c.violate("C3", l.name, op.Granted, "a grant has no token", op)
		}
		last := floor{}
		if n := len(l.floors); n > 0 {
			last = l.floors[n-1]
		}
		i := sort.Search(len(l.floors), func(i int) bool { return l.floors[i].at >= op.Asked }) - 1
		if i >= 0 {
			least := l.floors[i].exclusive
			if op.exclusive() {
				least = l.floors[i].all
			}
			if op.Token <= least {
				c.violate("C3", l.name, op.Granted,
					fmt.Sprintf("token %d was granted to one who asked after %d had been", op.Token, least), c.withToken(l, op, least)...)
			}
		}
		next := floor{op.Granted, last.exclusive, max(last.all, op.Token)}
		if op.exclusive() {
			next.exclusive = max(last.exclusive, op.Token)
		}
		l.floors = append(l.floors, next)
	}
	c.twice(l, fresh)
	// The last floor before the oldest call that waits is still needed.
	if i := sort.Search(len(l.floors), func(i int) bool { return l.floors[i].at >= oldest }) - 1; i > 0 {
		l.floors = slices.Delete(l.floors, 0, i)
	}
}

// nested: what is nested in a hold has its token.
func (c *Checker) nested(l *line, op *Op) {
	for _, other := range slices.Concat(l.live, l.old) {
		if other.Key == op.owner() && other.Token != op.Token {
			c.violate("C3", l.name, op.Granted, fmt.Sprintf("token %d is nested in a hold with %d", op.Token, other.Token), other, op)
		}
	}
}

// semaphores have fewer units than a read/write lock, which has 2^30.
const semaphores = 1 << 30

// twice finds exclusive grants with one token.
func (c *Checker) twice(l *line, fresh []*Op) {
	by := make(map[uint64]*Op)
	for _, op := range slices.Concat(l.old, l.live) {
		if !op.exclusive() || !op.ordered || op.In > 0 {
			continue
		}
		if other := by[op.Token]; other != nil && (slices.Contains(fresh, op) || slices.Contains(fresh, other)) {
			c.violate("C3", l.name, op.Granted, fmt.Sprintf("token %d was granted twice", op.Token), other, op)
		}
		by[op.Token] = op
	}
}

// withToken returns the call and one that has this token, if it is known still.
func (c *Checker) withToken(l *line, op *Op, token uint64) []*Op {
	for _, other := range slices.Concat(l.live, l.old) {
		if other.Token == token && other != op {
			return []*Op{other, op}
		}
	}
	return []*Op{op}
}

// order is C4: of two clients that use a name with one goroutine each, the one
// that had its place before the other asked has the lower token. Goroutines of
// one client hand over among themselves, within the bound that is documented,
// and are not judged. Nor is a wait in which the client was disturbed: it may
// have lost its place.
func (c *Checker) order(l *line) {
	if !c.rules.Fair {
		return
	}
	var waits, all []*Op
	for _, op := range slices.Concat(l.old, l.live) {
		if !op.Alone || op.Limit != 1 || !op.ordered {
			continue
		}
		all = append(all, op)
		if op.Waiting > 0 && !op.judged {
			op.judged, op.calm = true, !c.disturbed(op)
			if op.calm {
				c.stats.Ordered++
			}
		}
		if op.calm {
			waits = append(waits, op)
		}
	}
	slices.SortFunc(all, func(a, b *Op) int { return cmp.Compare(a.Asked, b.Asked) })
	slices.SortFunc(waits, func(a, b *Op) int { return cmp.Compare(a.Waiting, b.Waiting) })
	i := 0
	var top *Op
	for _, op := range all {
		for ; i < len(waits) && waits[i].Waiting < op.Asked; i++ {
			if top == nil || waits[i].Token > top.Token {
				top = waits[i]
			}
		}
		if top != nil && top.Token > op.Token {
			c.violate("C4", l.name, op.Granted, "who asked later was granted first", top, op)
		}
	}
}

// disturbed says whether something happened to a call's process from a TTL
// before it had its place until it was granted.
func (c *Checker) disturbed(op *Op) bool {
	from, to := op.Waiting-int64(c.rules.TTL), op.Granted
	for p, us := range c.upsets {
		for _, u := range us {
			theirs := p == Store || c.rules.Contagious && u.kind == "pause"
			if p != op.P && !theirs || u.kind == "stall" && u.to-u.from < int64(c.rules.TTL)/4 {
				continue
			}
			end := u.to
			if end < math.MaxInt64 {
				end += int64(c.rules.TTL)
			}
			if u.from < to && end > from {
				return true
			}
		}
	}
	return false
}
