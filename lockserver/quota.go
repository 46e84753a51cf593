package lockserver

import "sync"

// quota counts what each principal has open, and refuses what is beyond the limits. Its
// mutex is taken last: no other one is asked for while it is held.
type quota struct {
	limits Limits

	mu   sync.Mutex
	uses map[string]*usage // by principal; none that is empty
}

// usage has the counts of one principal.
type usage struct {
	holds, waits, polls int
	waitsOf             map[string]int // by the prefixes of grants that bound them
}

func newQuota(l Limits) *quota { return &quota{limits: l, uses: make(map[string]*usage)} }

// change applies f to the counts of a principal, and forgets them when they are zero.
func (q *quota) change(principal string, f func(u *usage)) {
	q.mu.Lock()
	defer q.mu.Unlock()
	u := q.uses[principal]
	if u == nil {
		u = new(usage)
		q.uses[principal] = u
	}
	f(u)
	if u.holds == 0 && u.waits == 0 && u.polls == 0 {
		delete(q.uses, principal)
	}
}

// countHold adds n holds, waits included.
func (q *quota) countHold(principal string, n int) {
	q.change(principal, func(u *usage) { u.holds += n })
}

// countWait adds n waits for a name that grants with these prefixes bound.
func (q *quota) countWait(principal string, prefixes []string, n int) {
	q.change(principal, func(u *usage) {
		u.waits += n
		for _, prefix := range prefixes {
			if u.waitsOf == nil {
				u.waitsOf = make(map[string]int)
			}
			if u.waitsOf[prefix] += n; u.waitsOf[prefix] == 0 {
				delete(u.waitsOf, prefix)
			}
		}
	})
}

// checkHold refuses another hold beyond the limits of its principal.
func (q *quota) checkHold(p *Principal, name string) *problem {
	q.mu.Lock()
	defer q.mu.Unlock()
	u := q.uses[p.Name]
	if u == nil {
		return nil
	}
	g, _ := p.grantOf(RightLock, name)
	switch {
	case u.holds >= q.limits.Holds:
		return tooMany("%d holds", u.holds)
	case u.waits >= q.limits.Waiters:
		return tooMany("%d waiters", u.waits)
	case g.Waiters > 0 && u.waitsOf[g.Prefix] >= g.Waiters:
		return tooMany("%d waiters for names with a prefix of its rights", u.waitsOf[g.Prefix])
	}
	return nil
}

// beginPoll counts a request that waits, or refuses it; endPoll ends it.
func (q *quota) beginPoll(principal string) (bad *problem) {
	q.change(principal, func(u *usage) {
		if u.polls >= q.limits.Polls {
			bad = tooMany("%d requests that wait", u.polls)
			return
		}
		u.polls++
	})
	return bad
}

func (q *quota) endPoll(principal string) {
	q.change(principal, func(u *usage) { u.polls-- })
}

// total returns the counts of all principals together.
func (q *quota) total() (sum usage) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, u := range q.uses {
		sum.holds += u.holds
		sum.waits += u.waits
		sum.polls += u.polls
	}
	return sum
}
