package zklock

import (
	"cmp"
	"slices"

	"github.com/holdfast-go/holdfast/driver"
)

// A place is one or more nodes with one number; several belong to one owner.
type place struct {
	nodes []node
	units int64
}

func (v *view) places() []place {
	ps := make([]place, 0, len(v.nodes))
	for i, n := range v.nodes { // the nodes of one place are side by side
		if k := len(ps) - 1; k >= 0 && ps[k].nodes[0].seq == n.seq && !spent(n.seq) {
			first := i - len(ps[k].nodes)
			ps[k].nodes = v.nodes[first : i+1 : i+1]
			ps[k].units = max(ps[k].units, n.units)
		} else {
			ps = append(ps, place{v.nodes[i : i+1 : i+1], n.units})
		}
	}
	return ps
}

// limit returns the queue's limit: that of the first node that has one, or 0 if
// none has.
func (v *view) limit() int64 {
	for _, n := range v.nodes {
		if n.limit != anyLimit {
			return n.limit
		}
	}
	return 0
}

// add returns the sum of a and b, at most the greatest int64.
func add(a, b int64) int64 {
	if s := a + b; s >= a {
		return s
	}
	return 1<<63 - 1
}

// fits reports whether a new ticket would hold at once.
func (v *view) fits(units, limit int64) bool {
	sum := units
	for _, p := range v.places() {
		if p.nodes[0].limit != limit {
			return false
		}
		sum = add(sum, p.units)
	}
	return sum <= limit
}

// A position is the position of one node in its queue.
type position struct {
	found bool
	held  bool
	ahead int // number of places
	// target is the node to wait for. If alone is set, the end of that node
	// makes the waiter a holder without another listing.
	target string
	alone  bool
	// manyAhead is set if no single node is in the way: several tickets hold, and
	// any of them may leave first. The first waiter (head) watches the whole
	// queue.
	manyAhead, head bool
	// severalNodes is set if the place in the way has more nodes than the one to
	// watch.
	severalNodes bool
	last         bool // it is the last place
}

// position finds the node of that name and works out its position. The node to
// watch is the last one ahead that alone excludes it: while that node exists,
// no other change can make a difference. A node with another limit than the
// waiter's is in the way of every ticket: it will soon be gone, or else it
// holds.
func (v *view) position(name string) (s position) {
	ps := v.places()
	at := slices.IndexFunc(ps, func(p place) bool {
		return slices.ContainsFunc(p.nodes, func(n node) bool { return n.name == name })
	})
	if at < 0 {
		return s
	}
	s.found, s.ahead, s.last = true, at, at == len(ps)-1
	mine := ps[at]
	limit := mine.nodes[0].limit
	units := func(p place) int64 {
		if p.nodes[0].limit != limit {
			return limit
		}
		return p.units
	}
	excludes := func(units int64) bool { return units > limit-mine.units }
	sum, single := int64(0), -1
	for i, p := range ps[:at] {
		sum = add(sum, units(p))
		if excludes(units(p)) {
			single = i
		}
	}
	if add(sum, mine.units) <= limit {
		s.held = true
		return s
	}
	if single >= 0 {
		t := ps[single]
		// A writer of Curator's that goes on as a reader has two nodes of one
		// number; a reader waits only for the writer's node.
		for _, n := range t.nodes {
			if n.limit != limit || excludes(n.units) {
				s.target = n.name
			}
		}
		s.severalNodes = len(t.nodes) > 1
		// The place of an owner, or of a writer that goes on as a reader, may
		// have got another node since this listing.
		grows := t.nodes[0].owner != "" || limit == driver.RWLimit && t.units > 1 && mine.units > 1
		s.alone = len(t.nodes) == 1 && !grows && add(sum-units(t), mine.units) <= limit
		return s
	}
	s.manyAhead = true
	pred := ps[at-1]
	s.head = sum <= limit
	s.target = pred.nodes[len(pred.nodes)-1].name
	return s
}

// keepingOut returns the paths of nodes ahead of the node of that name, which waits.
// While all of them exist it does not hold.
func (v *view) keepingOut(queue, name string) []string {
	ps := v.places()
	at := slices.IndexFunc(ps, func(p place) bool {
		return slices.ContainsFunc(p.nodes, func(n node) bool { return n.name == name })
	})
	if at < 0 {
		return nil
	}
	mine := ps[at]
	limit := mine.nodes[0].limit
	units := func(n node) int64 {
		if n.limit != limit {
			return limit
		}
		return n.units
	}
	var greatest []node // of each place, the node that makes it as large as it is
	for _, p := range ps[:at] {
		greatest = append(greatest, slices.MaxFunc(p.nodes, func(a, b node) int { return cmp.Compare(units(a), units(b)) }))
	}
	slices.SortStableFunc(greatest, func(a, b node) int { return cmp.Compare(units(b), units(a)) })
	var paths []string
	for sum := mine.units; sum <= limit && len(greatest) > 0; greatest = greatest[1:] {
		sum = add(sum, units(greatest[0]))
		paths = append(paths, queue+"/"+greatest[0].name)
	}
	return paths
}
