package redlock

import (
	"context"
	"sync"
	"time"
)

// request is a request to a node that is under way. Its methods work on nil.
//
// Under mu, only the mutex of node.givenUp is taken.
type request struct {
	n      *node
	cancel context.CancelFunc

	mu      sync.Mutex
	over    bool
	givenUp bool
	dropped bool // nothing follows from its error for the node's health
	turn    int  // for unanswered.Requests.End
}

// ask runs a request to a node on a goroutine of its own, and then done. It
// returns nil, and calls neither, when the driver is closed.
func (n *node) ask(limit time.Duration, f func(ctx context.Context) error, done func(err error)) *request {
	ctx, cancel := context.WithTimeout(n.of.life, limit)
	r := &request{n: n, cancel: cancel}
	if !n.of.begin(func() {
		defer cancel()
		begun := time.Now()
		err := f(ctx)
		if took := time.Since(begun); !r.end() {
			n.note(took, err)
		}
		done(err)
	}) {
		cancel()
		return nil
	}
	return r
}

// giveUp notes that nobody waits for the answer any more. The request goes on,
// because its answer may still be of use, unless the node is down and has many
// such requests already.
func (r *request) giveUp() {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over || r.givenUp {
		return
	}
	r.dropped = r.n.down.Load() && r.n.givenUp.Full()
	if r.dropped {
		r.cancel()
		return
	}
	r.givenUp, r.turn = true, r.n.givenUp.GiveUp()
}

// end notes that the request has ended, and reports whether it was dropped.
func (r *request) end() (dropped bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.over = true
	if r.givenUp {
		r.n.givenUp.End(r.turn)
	}
	return r.dropped
}
