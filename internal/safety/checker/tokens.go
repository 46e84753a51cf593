package checker

import (
	"cmp"
	"fmt"
	"slices"
	"sort"
)

// tokenBound has the greatest tokens, of exclusive grants and of all grants,
// that had returned by a time.
type tokenBound struct {
	at             int64
	exclusive, all uint64
}

// checkTokens applies C3 to grants in the order in which they returned. A call
// that began after a grant had returned must have a greater token: an exclusive
// grant than all grants, a shared grant than the exclusive ones. Tokens of
// semaphores only distinguish grants.
func (c *Checker) checkTokens(l *lockRecord, t, oldest int64) {
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
			c.checkNestedToken(l, op)
			continue
		}
		if op.Token == 0 {
			c.violations.add("C3", l.name, op.Granted, "a grant has no token", op)
		}
		last := tokenBound{}
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
				c.violations.add("C3", l.name, op.Granted,
					fmt.Sprintf("token %d was granted to one who asked after %d had been", op.Token, least), l.withToken(op, least)...)
			}
		}
		next := tokenBound{op.Granted, last.exclusive, max(last.all, op.Token)}
		if op.exclusive() {
			next.exclusive = max(last.exclusive, op.Token)
		}
		l.floors = append(l.floors, next)
	}
	c.checkTokenReuse(l, fresh)
	// The last floor before the oldest waiting call is still needed.
	if i := sort.Search(len(l.floors), func(i int) bool { return l.floors[i].at >= oldest }) - 1; i > 0 {
		l.floors = slices.Delete(l.floors, 0, i)
	}
}

// checkNestedToken checks that a nested hold has the token of its outer hold.
func (c *Checker) checkNestedToken(l *lockRecord, op *Op) {
	for _, other := range slices.Concat(l.live, l.old) {
		if other.Key == op.owner() && other.Token != op.Token {
			c.violations.add("C3", l.name, op.Granted, fmt.Sprintf("token %d is nested in a hold with %d", op.Token, other.Token), other, op)
		}
	}
}

// semaphores is a bound above the limit of every semaphore: the 2^30 units of a
// read/write lock.
const semaphores = 1 << 30

// checkTokenReuse finds exclusive grants with the same token.
func (c *Checker) checkTokenReuse(l *lockRecord, fresh []*Op) {
	by := make(map[uint64]*Op)
	for _, op := range slices.Concat(l.old, l.live) {
		if !op.exclusive() || !op.ordered || op.In > 0 {
			continue
		}
		if other := by[op.Token]; other != nil && (slices.Contains(fresh, op) || slices.Contains(fresh, other)) {
			c.violations.add("C3", l.name, op.Granted, fmt.Sprintf("token %d was granted twice", op.Token), other, op)
		}
		by[op.Token] = op
	}
}

// withToken returns the call and another call with this token, if one is still
// known.
func (l *lockRecord) withToken(op *Op, token uint64) []*Op {
	for _, other := range slices.Concat(l.live, l.old) {
		if other.Token == token && other != op {
			return []*Op{other, op}
		}
	}
	return []*Op{op}
}

// checkOrder applies C4: of two clients that use a name with one goroutine
// each, the client that had its place before the other asked has the lower
// token. Goroutines of one client hand the lock over among themselves, within
// the documented bound, and are not judged. A wait in which the client was
// disturbed is not judged either: the client may have lost its place.
func (c *Checker) checkOrder(l *lockRecord) {
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
			op.judged, op.calm = true, !c.disturbances.meet(op, &c.rules)
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
			c.violations.add("C4", l.name, op.Granted, "who asked later was granted first", top, op)
		}
	}
}
