package redlock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// Leave implements [driver.Driver]. It asks all nodes that may have a vote,
// including those that have not answered. It returns once a majority and the
// nodes that are in time have answered; the other nodes are asked on in the
// background.
func (d *Driver) Leave(ctx context.Context, refs []driver.Ref) ([]driver.Status, error) {
	if err := d.nodes.checkOpen(ctx); err != nil {
		return nil, err
	}
	places := make([]driver.Status, len(refs))
	entries := make([]*entry, len(refs))
	for i, r := range refs {
		if entries[i] = d.find(r.ID); entries[i] == nil {
			places[i] = driver.Status{State: driver.Gone}
			if r.JoinPending {
				d.forget(r.ID, true) // makes a later Join answer Gone
			}
		}
	}
	d.leaveAll(ctx, entries)
	for i, e := range entries {
		if e != nil {
			places[i] = e.finishLeave(refs[i].JoinPending)
		}
	}
	return places, nil
}

// leaveAll sends each node the tickets that have to leave it.
func (d *Driver) leaveAll(ctx context.Context, entries []*entry) {
	batches := make([]nodeBatch, len(d.nodes.all))
	ttl := time.Duration(0)
	for _, e := range entries {
		if e == nil {
			continue
		}
		e.mu.Lock()
		e.MustLeave, e.leaving = true, true
		for i := range e.votes {
			v := &e.votes[i]
			v.leftBefore = v.leftAs != 0
			if v.leftAs != 0 || v.busy && e.State == driver.Held { // onVoteLocked gives that vote back when its Join is answered
				continue
			}
			refs := v.refs(false)
			if len(refs) == 0 {
				v.leftAs = driver.Gone
			}
			v.err = nil // the error of an earlier request
			for _, r := range refs {
				batches[i].entries = append(batches[i].entries, e)
				batches[i].refs = append(batches[i].refs, r)
			}
		}
		ttl = max(ttl, e.t.TTL)
		e.signalLocked()
		e.mu.Unlock()
	}
	for i, p := range batches {
		if n := d.nodes.all[i]; !n.usable() {
			n.clean(p.refs...)
			batches[i] = nodeBatch{}
		}
	}
	d.nodes.askNodes(ctx, batches, ttl, d.leaveAt, func() bool {
		return all(entries, func(e *entry) bool { return e.leaveStatusLocked().Err == nil })
	})
}

// leaveAt makes tickets leave one node and handles the answers. The cleaner
// repeats leaves that were not confirmed.
func (d *Driver) leaveAt(ctx context.Context, n *node, batch nodeBatch) error {
	ps, err := n.d.Leave(ctx, batch.refs)
	var failed error
	for i, e := range batch.entries {
		p := driver.Status{Err: err}
		if err == nil {
			p = ps[i]
		}
		e.mu.Lock()
		v := &e.votes[n.at]
		if p.Err != nil {
			v.err = p.Err
			if driver.ClassOf(p.Err) != driver.Refused {
				failed = p.Err
			}
			n.clean(batch.refs[i])
		} else if v.t != nil && v.t.ID == batch.refs[i].ID {
			v.leftAs = p.State
		}
		e.mu.Unlock()
	}
	return failed
}

// leaveStatusLocked returns the state from which an entry left.
func (e *entry) leaveStatusLocked() driver.Status {
	var held, open int
	var errs []error
	for i := range e.votes {
		switch v := &e.votes[i]; v.leftAs {
		case driver.Held:
			held++
		case 0:
			open++
			if v.err != nil {
				errs = append(errs, fmt.Errorf("node %d: %w", i+1, v.err))
			}
		}
	}
	switch e.State {
	case driver.Held:
		switch {
		case held >= e.nodes.quorum:
			return driver.Status{State: driver.Held}
		case held+open < e.nodes.quorum:
			return driver.Status{State: driver.Gone}
		}
	case driver.Waiting:
		if e.home < 0 {
			return driver.Status{State: driver.Waiting}
		}
		switch e.votes[e.home].leftAs {
		case driver.Waiting, driver.Held:
			return driver.Status{State: driver.Waiting}
		case driver.Gone:
			if e.votes[e.home].t == nil { // between two tries
				return driver.Status{State: driver.Waiting}
			}
			return driver.Status{State: driver.Gone}
		}
	case 0:
		switch {
		case e.home >= 0 && e.votes[e.home].leftAs == driver.Waiting:
			return driver.Status{State: driver.Waiting}
		case held >= e.nodes.quorum:
			return driver.Status{State: driver.Held}
		case e.home >= 0 && e.votes[e.home].leftAs == 0:
			// It may have its only place there.
		case open == 0 || held+open < e.nodes.quorum:
			return driver.Status{State: driver.Gone}
		}
	default:
		return driver.Status{State: driver.Gone}
	}
	if len(errs) == open && !slices.ContainsFunc(errs, func(err error) bool { return driver.ClassOf(err) != driver.Refused }) {
		// The others have confirmed, and those that refuse will refuse again.
		return driver.Status{Err: driver.Errorf(driver.Refused, "%d of %d nodes refuse: %w", open, len(e.nodes.all), errors.Join(errs...))}
	}
	return driver.Status{Err: e.nodes.short(open, "have not confirmed", errs)}
}

// freedBeforeLocked reports whether earlier Leaves, whose outcome their caller was not
// told, have ended the place that an entry left: another ticket may hold since then, and
// this Leave found none (Leave 1).
func (e *entry) freedBeforeLocked(from driver.State) bool {
	if from == driver.Waiting {
		return e.home >= 0 && e.votes[e.home].leftBefore
	}
	kept := 0
	for i := range e.votes {
		if v := &e.votes[i]; !v.leftBefore && (v.leftAs == driver.Held || v.leftAs == 0) {
			kept++
		}
	}
	return kept < e.nodes.quorum
}

// finishLeave returns the state from which an entry left, and ends the entry if
// that state is known.
func (e *entry) finishLeave(joinPending bool) driver.Status {
	e.mu.Lock()
	p := e.leaveStatusLocked()
	if p.Err == nil {
		if e.freedBeforeLocked(p.State) {
			p.State = driver.Gone
		}
		e.Left()
	}
	e.signalLocked()
	e.mu.Unlock()
	if p.Err == nil {
		e.d.forget(e.t.ID, joinPending)
	}
	return p
}
