package redlock

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// Leave implements [driver.Driver]: at all nodes that may have a vote, also
// those that have not answered. It returns when the nodes that answer promptly
// have, and a majority; the others are asked on in the background.
func (d *Driver) Leave(ctx context.Context, refs []driver.Ref) ([]driver.Place, error) {
	if err := d.before(ctx); err != nil {
		return nil, err
	}
	places := make([]driver.Place, len(refs))
	entries := make([]*entry, len(refs))
	for i, r := range refs {
		if entries[i] = d.find(r.ID); entries[i] == nil {
			places[i] = driver.Place{State: driver.Gone}
			if r.Unsure {
				d.forget(r.ID, true) // a Join that comes later finds it Gone
			}
		}
	}
	d.leaveAll(ctx, entries)
	for i, e := range entries {
		if e != nil {
			places[i] = d.leftAs(e, refs[i].Unsure)
		}
	}
	return places, nil
}

// leaveAll sends what has to leave, node by node.
func (d *Driver) leaveAll(ctx context.Context, entries []*entry) {
	parts := make([]part, len(d.nodes))
	ttl := time.Duration(0)
	for _, e := range entries {
		if e == nil {
			continue
		}
		e.mu.Lock()
		e.left = true
		for i := range e.votes {
			v := &e.votes[i]
			if v.leftAs != 0 {
				continue
			}
			refs := v.refs(false)
			if len(refs) == 0 {
				v.leftAs = driver.Gone
			}
			for _, r := range refs {
				parts[i].entries = append(parts[i].entries, e)
				parts[i].refs = append(parts[i].refs, r)
			}
		}
		ttl = max(ttl, e.t.TTL)
		e.signal()
		e.mu.Unlock()
	}
	for i, p := range parts {
		if n := d.nodes[i]; !n.usable() {
			for _, r := range p.refs {
				d.clean(n, r)
			}
			parts[i] = part{}
		}
	}
	d.askParts(ctx, parts, ttl, d.leaveAt, func() bool { return d.settled(entries) })
}

// settled says whether enough is known of all entries that leave.
func (d *Driver) settled(entries []*entry) bool {
	for _, e := range entries {
		if e == nil {
			continue
		}
		e.mu.Lock()
		p := d.answer(e)
		e.mu.Unlock()
		if p.Err != nil {
			return false
		}
	}
	return true
}

// leaveAt lets tickets leave one node and takes the answers. What was not
// confirmed is left to the cleaner.
func (d *Driver) leaveAt(ctx context.Context, n *node, its part) error {
	ps, err := n.d.Leave(ctx, its.refs)
	var failed error
	for i, e := range its.entries {
		p := driver.Place{Err: err}
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
			d.clean(n, its.refs[i])
		} else if v.t != nil && v.t.ID == its.refs[i].ID {
			v.leftAs = p.State
		}
		e.mu.Unlock()
	}
	return failed
}

// answer says what an entry that leaves was. The lock is held.
func (d *Driver) answer(e *entry) driver.Place {
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
	switch e.stage {
	case granted:
		switch {
		case held >= d.quorum:
			return driver.Place{State: driver.Held}
		case held+open < d.quorum:
			return driver.Place{State: driver.Gone}
		}
	case inLine:
		if e.home < 0 {
			return driver.Place{State: driver.Waiting}
		}
		switch e.votes[e.home].leftAs {
		case driver.Waiting, driver.Held:
			return driver.Place{State: driver.Waiting}
		case driver.Gone:
			if e.votes[e.home].t == nil { // between two tries
				return driver.Place{State: driver.Waiting}
			}
			return driver.Place{State: driver.Gone}
		}
	case fresh:
		switch {
		case e.home >= 0 && e.votes[e.home].leftAs == driver.Waiting:
			return driver.Place{State: driver.Waiting}
		case held >= d.quorum:
			return driver.Place{State: driver.Held}
		case open == 0 || held+open < d.quorum:
			return driver.Place{State: driver.Gone}
		}
	default:
		return driver.Place{State: driver.Gone}
	}
	return driver.Place{Err: d.short(open, "have not confirmed", errs)}
}

// leftAs ends an entry whose leaving is settled.
func (d *Driver) leftAs(e *entry, unsure bool) driver.Place {
	e.mu.Lock()
	p := d.answer(e)
	if p.Err == nil {
		e.stage = over
	}
	e.signal()
	e.mu.Unlock()
	if p.Err == nil {
		d.forget(e.t.ID, unsure)
	}
	return p
}
