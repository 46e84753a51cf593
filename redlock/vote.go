package redlock

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/tracker"
)

// requestVoteLocked sends a Join to a node, for its vote; old, if not nil, is
// replaced in the same request. With wait the ticket may wait in the node's
// queue. No answer of the node is outstanding.
func (e *entry) requestVoteLocked(at int, wait bool, ttl time.Duration, minToken uint64, old *driver.Ticket) {
	n, v := e.nodes.all[at], &e.votes[at]
	t := e.newTicketLocked(ttl, minToken)
	t.Replaces = old
	*v = vote{t: t, old: old, waits: wait, busy: true}
	sent, mark := time.Now(), e.d.marks.Add(1)
	if ttl < e.t.TTL {
		mark = 0
	}
	v.request = n.ask(n.limit(e.t.TTL), func(ctx context.Context) (err error) {
		p, err := n.d.Join(ctx, t, wait)
		e.mu.Lock()
		defer e.mu.Unlock()
		if err != nil && e.nodes.life.Err() != nil && (e.MustLeave || v.t != t) {
			asked := vote{t: t, old: old, busy: true}
			n.clean(asked.refs(true)...) // Close makes it leave
			return err
		}
		if v.t != t {
			e.onLateVoteLocked(n, t, old, p, err)
		} else {
			e.onVoteLocked(n, v, t, p, err, sent, mark)
		}
		return err
	}, func(error) {})
	if v.request == nil {
		v.busy, v.err = false, driver.ErrClosed
	}
}

// onVoteLocked handles the answer to a Join of t.
func (e *entry) onVoteLocked(n *node, v *vote, t *driver.Ticket, p driver.Status, err error, sent time.Time, mark uint64) {
	defer e.signalLocked()
	v.busy, v.err = false, err
	switch {
	case err == nil:
		p = v.Reply(p, sent)
		v.place, v.old, v.mark = p, nil, mark
		if p.State == driver.Held {
			e.d.tokens.observe(n.at, p.Token, t.MinToken, time.Now())
		}
		// From now on the vote is renewed for the ticket's own TTL, whichever
		// TTL the Join had.
		full := *t
		full.TTL, full.Replaces = e.t.TTL, nil
		v.t = &full
	case driver.ClassOf(err) == driver.Unknown:
		v.joinUnknown = true
	default:
		v.t = nil
		e.giveBackLocked(n.at) // gives back the replaced ticket, which may have left or not
		v.err = err
	}
	// The home's place is kept until there is a majority, and so is a vote
	// without an answer.
	if e.MustLeave || v.State == driver.Waiting && n.at != e.home || e.State == driver.Held && (v.State == driver.Waiting || v.joinUnknown) {
		e.giveBackLocked(n.at)
	}
}

// onLateVoteLocked handles the answer to a Join of t that was given back while
// it was under way. Only now is it known which tickets have to leave, so that
// no node has to remember a ticket that may still come.
func (e *entry) onLateVoteLocked(n *node, t, old *driver.Ticket, p driver.Status, err error) {
	e.back--
	e.signalLocked()
	answered := vote{Ticket: tracker.Ticket{State: p.State}, t: t, old: old}
	switch {
	case err == nil:
		answered.old = nil
	case driver.ClassOf(err) == driver.Unknown:
		answered.joinUnknown = true
	default:
		answered.t = nil
	}
	e.leaveLocked(n, answered.refs(false))
}

// giveBackLocked makes a node's ticket leave, and repeats that until the node
// confirms it. If the ticket's Join is under way, it leaves once the Join is
// answered.
func (e *entry) giveBackLocked(at int) {
	v := &e.votes[at]
	given := *v
	*v = vote{}
	if given.busy {
		given.request.giveUp()
		e.back++
		return
	}
	e.leaveLocked(e.nodes.all[at], given.refs(false))
}

// leaveLocked makes tickets of an entry leave a node.
func (e *entry) leaveLocked(n *node, refs []driver.Ref) {
	if len(refs) == 0 {
		return
	}
	if n.down.Load() && n.givenUp.Full() {
		n.clean(refs...)
		return
	}
	e.back++
	r := n.ask(n.limit(e.t.TTL), func(ctx context.Context) error {
		ps, err := n.d.Leave(ctx, refs)
		for i := range refs {
			if err != nil || ps[i].Err != nil {
				n.clean(refs[i])
			}
			if err == nil && ps[i].Err != nil {
				err = ps[i].Err
			}
		}
		return err
	}, func(error) {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.back--
		e.signalLocked()
	})
	if r == nil {
		e.back--
		n.clean(refs...)
	}
	r.giveUp() // awaitReturned does not wait for all of them
}

// refs returns the tickets that have to leave for the vote to be given back.
func (v *vote) refs(joinPending bool) []driver.Ref {
	var refs []driver.Ref
	if v.t != nil && (v.busy || v.joinUnknown || v.State == driver.Held || v.State == driver.Waiting) {
		state := driver.Held
		if v.State == driver.Waiting {
			state = driver.Waiting
		}
		refs = append(refs, driver.Ref{Ticket: v.t, State: state, JoinPending: joinPending || v.busy || v.joinUnknown})
	}
	if v.old != nil {
		refs = append(refs, driver.Ref{Ticket: v.old, State: driver.Held})
	}
	return refs
}

// giveAllBackLocked gives back all votes except that of node keep, which may be
// -1.
func (e *entry) giveAllBackLocked(keep int) {
	for i := range e.votes {
		if i != keep {
			e.giveBackLocked(i)
		}
	}
}

// awaitReturned waits until the nodes that are in time have dropped the votes
// that were given back, so that later readers of the queue find nothing. The
// caller holds no mutex.
func (e *entry) awaitReturned(ctx context.Context) {
	timer := time.NewTimer(e.nodes.nodeWait())
	defer timer.Stop()
	for {
		e.mu.Lock()
		back, changed := e.back, e.changed
		e.mu.Unlock()
		if back == 0 {
			return
		}
		select {
		case <-changed:
		case <-timer.C:
			return
		case <-ctx.Done():
			return
		case <-e.nodes.life.Done():
			return
		}
	}
}
