package redlock

import (
	"slices"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// final returns the token of a grant by these nodes' answers, if the answers
// suffice. The token has to be above every earlier one, which a majority of
// nodes remembers: so it is the greatest answer of some majority. A majority
// has to remember the token as well: as many answers must not be below it. The
// middle one of all nodes' answers is always final, and so is an answer that a
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

// estimate measures how far the nodes' fastest clock is ahead, in ticks of
// tokens. It only proposes minimum tokens: if it is wrong, one more round is
// needed.
//
// A node's token is never below its clock, but may be above it, where tokens
// ran ahead. So estimate takes the clock to be the lowest that recent answers
// allow. An answer equal to the request's minimum token shows only that the
// clock is not past it: if such an answer counted, each minimum token would
// raise the next one.
//
// No mutex is taken under mu.
type estimate struct {
	mu     sync.Mutex
	start  time.Time // origin of ticks
	window time.Time // start of the current window
	nodes  []offsets
}

// offsets are the least amounts by which a node's tokens were ahead of this
// client's ticks, in this window and in the one before. 0 means that there was
// no answer.
type offsets struct{ now, before uint64 }

// windowLength is the length of a window: the time until estimate notices a
// clock that was set forward.
const windowLength = 10 * time.Second

func (e *estimate) ticks(at time.Time) uint64 {
	return uint64(max(0, at.Sub(e.start)) / driver.TokenTick)
}

// observe records a node's answer to a request with that minimum token.
func (e *estimate) observe(node int, token, minToken uint64, at time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if at.Sub(e.window) > windowLength {
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
	if most := token - ticks; token > minToken && o.now == 0 {
		o.now = most
	} else {
		o.now, o.before = min(o.now, most), min(o.before, most)
	}
}

// ahead returns a token that, as far as is known, no node's clock reaches
// within lead from now; 0 if nothing is known.
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
