package drivertest

import (
	"cmp"
	"slices"
	"sync"
	"time"
)

// history is the holds of one queue, as the holders believed them.
type history struct {
	mu    sync.Mutex
	holds []hold
}

// hold is one grant. Its holder relied on it from from to to: from the answer
// that granted it until just before the Leave, or until the end of its claim.
type hold struct {
	id       string
	units    int64
	token    uint64
	asked    time.Time // before the Join
	from, to time.Time
}

func (h *history) add(x hold) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if x.to.After(x.from) {
		h.holds = append(h.holds, x)
	}
}

// check fails if more units were held at one time than the limit allows, or if
// tokens are not in the order of the grants.
func (h *history) check(w *world, limit int64) {
	w.Helper()
	type edge struct {
		at    time.Time
		units int64
		id    string
	}
	var edges []edge
	for _, x := range h.holds {
		edges = append(edges, edge{x.from, x.units, x.id}, edge{x.to, -x.units, x.id})
	}
	slices.SortFunc(edges, func(a, b edge) int {
		return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.units, b.units)) // ends first
	})
	var units int64
	in := make(map[string]bool)
	for _, e := range edges {
		units += e.units
		if e.units < 0 {
			delete(in, e.id)
			continue
		}
		in[e.id] = true
		if units > limit {
			w.Errorf("%d units of %d are held at once, by %v", units, limit, in)
			break
		}
	}
	if !w.traits.Fencing {
		return
	}
	slices.SortFunc(h.holds, func(a, b hold) int { return a.asked.Compare(b.asked) })
	seen := make(map[uint64]string)
	for _, x := range h.holds {
		if other := seen[x.token]; other != "" {
			w.Errorf("%s and %s have token %d", other, x.id, x.token)
		}
		seen[x.token] = x.id
	}
	// A ticket that was asked for after another one's grant was known has the
	// greater token.
	byFrom := slices.Clone(h.holds)
	slices.SortFunc(byFrom, func(a, b hold) int { return a.from.Compare(b.from) })
	var known hold
	i := 0
	for _, x := range h.holds {
		for ; i < len(byFrom) && byFrom[i].from.Before(x.asked); i++ {
			if byFrom[i].token > known.token {
				known = byFrom[i]
			}
		}
		if x.token <= known.token {
			w.Errorf("%s has token %d, and asked after %s had %d", x.id, x.token, known.id, known.token)
		}
	}
	// And those that exclude each other have tokens in their order.
	known = hold{}
	for _, x := range byFrom {
		if x.units != limit {
			continue
		}
		if x.token < known.token {
			w.Errorf("%s has token %d, and holds after %s with %d", x.id, x.token, known.id, known.token)
		}
		known = x
	}
}
