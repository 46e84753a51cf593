package zklock

import (
	"errors"

	"github.com/go-zookeeper/zk"

	"github.com/holdfast-go/holdfast/driver"
)

// childKey returns the key in session.watchers of tickets that watch a queue's
// children.
func childKey(queue string) string { return queue + "/" }

// resolveLocked reads the ticket's place and, if the ticket waits, watches the one
// node that it waits for.
func (r *entry) resolveLocked() error {
	r.s.mu.Lock()
	name := nameOf(r.path)
	epoch := r.s.epoch
	held := r.State == driver.Held || r.State == driver.Gone
	r.s.mu.Unlock()
	if held {
		return nil
	}
	if n, ok := parseNode(name); ok && spent(n.seq) {
		return r.restartLocked()
	}
	// If the ticket was the first waiter behind several holders, it is assumed
	// to be that still: one request lists and watches the queue.
	for headed := r.wasFirst; ; {
		// An event from here on makes the ticket be resolved again.
		r.s.mu.Lock()
		events := r.events
		r.s.mu.Unlock()
		var v view
		var err error
		if headed {
			r.s.mu.Lock()
			r.watch(childKey(r.queue), false)
			r.s.mu.Unlock()
			children, stat, _, e := r.s.conn.ChildrenW(r.queue)
			v, err = queueNode{r.s, r.queue}.listed(children, stat, e)
		} else {
			v, err = r.list()
		}
		if err == nil && len(v.nodes) > maxTickets {
			err = driver.Errorf(driver.Refused, "%s has %d tickets; the maximum is %d", r.queue, len(v.nodes), maxTickets)
		}
		st := v.position(name)
		if err == nil && !st.found {
			r.s.mu.Lock()
			r.vanishedLocked()
			r.s.mu.Unlock()
			return nil
		}
		if err == nil {
			err = v.check(r.queue)
		}
		if have := v.limit(); err == nil && have != r.t.Limit {
			err = &driver.LimitError{Name: r.t.Name, Have: have, Want: r.t.Limit}
		}
		if err != nil {
			return r.unresolvedLocked(err)
		}
		if r.setPosition(&v, &st, epoch) {
			return r.wakeNext(&st)
		}
		if st.manyAhead && st.head {
			if headed {
				r.wasFirst = true
				r.noteResolved(events) // the watch was set before the listing
				return nil
			}
			headed = true
			continue
		}
		r.wasFirst = false
		again, err := r.waitFor(&st)
		if err != nil {
			return r.unresolvedLocked(err)
		}
		if !again {
			r.noteResolved(events)
			return nil
		}
		headed = false
	}
}

// maxRecounted is the most children of a queue that a renewal lists. In a longer queue
// the places ahead of a waiter are not known again before it is nearly its turn.
const maxRecounted = 1000

// recountLocked counts the places ahead of a ticket that waits for the same node as
// before. Tickets before that node may have left.
func (r *entry) recountLocked() error {
	r.s.mu.Lock()
	waits, target, alone, was := r.State == driver.Waiting, r.target, r.alone, r.aheadAt
	name := nameOf(r.path)
	r.s.mu.Unlock()
	if !waits {
		return nil
	}
	_, stat, err := r.s.conn.Exists(r.queue)
	if err != nil {
		return classed("look at "+r.queue, err)
	}
	ahead := -1
	switch {
	case stat.Pzxid == was:
		return nil
	case stat.NumChildren <= maxRecounted:
		v, err := r.list()
		if err != nil {
			return err
		}
		st := v.position(name)
		if !st.found || st.held || st.manyAhead || st.alone != alone || r.queue+"/"+st.target != target {
			return r.resolveLocked()
		}
		ahead, was = st.ahead, v.pzxid
	}
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	r.ahead, r.aheadAt = ahead, was
	return nil
}

// restartLocked removes a ticket whose number other tickets may get as well: the
// queue has used up its numbers. It deletes the queue if it is empty, so that
// the queue begins anew. Tickets that are still in the queue have lower
// numbers, and their turn comes first.
func (r *entry) restartLocked() error {
	if _, err := r.departLocked(); err != nil {
		return err
	}
	switch err := r.s.conn.Delete(r.queue, -1); {
	case err == nil, errors.Is(err, zk.ErrNoNode), errors.Is(err, zk.ErrNotEmpty):
	default:
		return classed("delete the empty queue "+r.queue, err)
	}
	return driver.Errorf(driver.NotDone, "%s has given its last number: it begins anew when nothing is left in it", r.queue)
}

// noteResolved notes that the ticket's events up to this number are dealt with.
func (r *entry) noteResolved(events int) {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	r.resolvedAt = events
}

// setPosition notes a position, and reports whether the ticket holds.
func (r *entry) setPosition(v *view, st *position, epoch int) bool {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	if n, ok := parseNode(nameOf(r.path)); ok && !r.hasBase {
		r.Token += v.base(n.seq)
		r.hasBase = true
	}
	r.ahead, r.aheadAt, r.manyAhead, r.severalNodes, r.epoch = st.ahead, v.pzxid, st.manyAhead, st.severalNodes, epoch
	p := driver.Status{State: driver.Waiting}
	if st.held {
		p = driver.Status{State: driver.Held, Token: r.Token}
	}
	if r.Push(p) && st.held {
		r.unwatch()
		r.holder = ""
	}
	return r.State == driver.Held
}

// waitFor watches the node that the ticket waits for. It asks to list again if
// that node has gone in the meantime.
func (r *entry) waitFor(st *position) (again bool, err error) {
	path := r.queue + "/" + st.target
	r.s.mu.Lock()
	r.watch(path, st.alone)
	r.s.mu.Unlock()
	data, stat, _, err := r.s.conn.GetW(path)
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	if r.State != driver.Waiting {
		return false, nil // the ticket's state changed during the request
	}
	switch {
	case errors.Is(err, zk.ErrNoNode):
		r.unwatch()
		return true, nil
	case err != nil:
		return false, classed("watch "+path, err)
	case stat.EphemeralOwner == 0:
		return false, foreign(path, "stays in the queue for ever: it is no ticket but a node that no session owns")
	case st.manyAhead && stat.Version > 0:
		// That node was granted, and announced its grant before the watch was
		// set.
		r.unwatch()
		return true, nil
	}
	if st.ahead == 1 {
		r.holder = readData(st.target, data).Meta
	}
	return false, nil
}

// wakeNext wakes the next waiter of a semaphore, which is now the first waiter. The
// next waiter watches this ticket's node, and no other event would reach it.
func (r *entry) wakeNext(st *position) error {
	if st.last || r.t.Limit == 1 || r.t.Limit == driver.RWLimit {
		return nil
	}
	r.s.mu.Lock()
	path, token := r.path, uint64(0)
	if r.t.Owner != "" {
		token = r.Token
	}
	r.s.mu.Unlock()
	// If the write fails, the next waiter still reads the queue at its renewal.
	_, _ = r.s.conn.Set(path, dataOf(r.t, token), -1)
	return nil
}

// unresolvedLocked handles an error that left the ticket's position unknown. A refused
// ticket can never have a place: unresolvedLocked removes its node. For any other
// error only the position is unknown.
func (r *entry) unresolvedLocked(err error) error {
	r.s.mu.Lock()
	fresh := r.State == 0
	r.epoch = -1
	r.unwatch()
	r.s.mu.Unlock()
	if driver.ClassOf(err) != driver.Refused {
		if fresh {
			r.createUnknown = true // the next Join finds the node and goes on
		}
		return err
	}
	if _, e := r.departLocked(); e != nil {
		return e
	}
	return err
}

// onTargetEvent resolves the ticket after an event on its target.
func (r *entry) onTargetEvent() {
	r.busy.Lock()
	defer r.busy.Unlock()
	r.s.mu.Lock()
	idle := r.State != driver.Waiting || r.MustLeave || r.events == r.resolvedAt
	r.s.mu.Unlock()
	if idle {
		return
	}
	err := r.resolveLocked()
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	switch {
	case err != nil && driver.ClassOf(err) == driver.Refused:
		// The core joins again, and that Join returns the reason.
		r.s.pushLocked(task{id: r.t.ID, place: driver.Status{State: driver.Gone}})
	case err != nil:
		r.events++ // makes the next renewal resolve it
	case r.State == driver.Held && !r.MustLeave:
		r.s.pushLocked(task{id: r.t.ID, place: driver.Status{State: driver.Held, Token: r.Token}})
	}
}
