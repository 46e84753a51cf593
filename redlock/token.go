package redlock

import (
	"slices"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// final returns the token of a grant by these nodes' answers, if it can be told
// already. It has to be above every token before, which a majority of nodes
// remembers: so it is the greatest of the answers of some majority. And it has
// to be remembered by a majority itself: as many answers must not be below it.
// The middle one of all nodes' answers is always final, and so is one that a
// majority gave alike.
func final(tokens []uint64, quorum int) (uint64, bool) {
	if len(tokens) < quorum {
		return 0, false
	}
	slices.Sort(tokens)
	t := tokens[quorum-1]
	first, _ := slices.BinarySearch(tokens, t)
	return t, len(tokens)-first >= quorum
}

// estimate knows how far the fastest clock of the nodes is, in ticks of tokens.
// It only proposes floors: where it is wrong, a round more is needed.
//
// A node's token is never below its clock, but above it where tokens ran ahead.
// So the clock is taken to be the lowest that answers of late allow. An answer
// that is the floor it was given says nothing but that the clock is not past it:
// if it counted, each floor would raise the next one.
type estimate struct {
	mu     sync.Mutex
	start  time.Time // of ticks
	window time.Time // when the current one began
	nodes  []offsets
}

// offsets are how far a node's tokens were ahead of our ticks, at least: in this
// window and in the one before. 0 says that there was none.
type offsets struct{ now, before uint64 }

// windowLasts is how soon a clock that was set forward is noticed.
const windowLasts = 10 * time.Second

func (e *estimate) ticks(at time.Time) uint64 {
	return uint64(max(0, at.Sub(e.start)) / driver.TokenTick)
}

// saw takes a node's answer to a request with that floor.
func (e *estimate) saw(node int, token, floor uint64, at time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if at.Sub(e.window) > windowLasts {
		e.window = at
		for i := range e.nodes {
			if now := e.nodes[i].now; now != 0 {
				e.nodes[i] = offsets{before: now}
			}
		}
	}
	ticks, o := e.ticks(at), &e.nodes[node]
	if token <= ticks {
		return
	}
	if most := token - ticks; token > floor && o.now == 0 {
		o.now = most
	} else {
		o.now, o.before = min(o.now, most), min(o.before, most)
	}
}

// ahead returns a token that no node's clock has reached in lead from now, as
// far as is known; 0 when nothing is.
func (e *estimate) ahead(at time.Time, lead time.Duration) uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	var most uint64
	for _, o := range e.nodes {
		if o.now == 0 || o.before != 0 && o.before < o.now {
			o.now = o.before
		}
		most = max(most, o.now)
	}
	if most == 0 {
		return 0
	}
	return most + e.ticks(at.Add(lead))
}

// hints remembers which names were contended of late: for those, it is better
// to ask the home first than all nodes at once, whose votes would have to be
// given back.
type hints struct {
	mu   sync.Mutex
	seen map[string]time.Time
}

const (
	hintLasts = 250 * time.Millisecond
	hintsMost = 1024
)

func (h *hints) set(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.seen) >= hintsMost || h.seen == nil {
		h.seen = make(map[string]time.Time)
	}
	h.seen[name] = time.Now().Add(hintLasts)
}

func (h *hints) has(name string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	until, ok := h.seen[name]
	if ok && time.Now().After(until) {
		delete(h.seen, name)
		ok = false
	}
	return ok
}
