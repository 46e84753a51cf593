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

// estimate knows how far the fastest clock of the nodes is, in ticks of
// tokens. It only proposes floors: where it is wrong, a round more is needed.
type estimate struct {
	mu    sync.Mutex
	token uint64
	at    time.Time
}

// saw takes an answer that was above the floor that was proposed.
func (e *estimate) saw(token, floor uint64, at time.Time) {
	if token <= floor {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if token > e.now(at) {
		e.token, e.at = token, at
	}
}

// ahead returns a token that no node's clock has reached in lead from now, as
// far as is known; 0 when nothing is.
func (e *estimate) ahead(at time.Time, lead time.Duration) uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.token == 0 {
		return 0
	}
	return e.now(at) + uint64(lead/driver.TokenTick)
}

func (e *estimate) now(at time.Time) uint64 {
	if e.token == 0 {
		return 0
	}
	return e.token + uint64(max(0, at.Sub(e.at))/driver.TokenTick)
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
