package redlock

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// Renew implements [driver.Driver]: one request to each node, for all tickets.
// A hold is confirmed by a majority; votes that were lost since, by a node that
// restarted for example, are then asked for again, so that they do not erode.
func (d *Driver) Renew(ctx context.Context, refs []driver.Ref) ([]driver.Place, error) {
	if err := d.before(ctx); err != nil {
		return nil, err
	}
	entries := make([]*entry, len(refs))
	for i, r := range refs {
		entries[i] = d.find(r.ID)
	}
	return d.keep(ctx, entries, time.Now(), true), nil
}

// keep renews entries; nil ones are Gone. Those granted meanwhile are renewed
// once more if again is set, because not all of their votes were.
func (d *Driver) keep(ctx context.Context, entries []*entry, sent time.Time, again bool) []driver.Place {
	mark := d.marks.Add(1)
	d.renewAll(ctx, entries, mark)
	places := make([]driver.Place, len(entries))
	var wg sync.WaitGroup
	for i, e := range entries {
		if e == nil {
			places[i] = driver.Place{State: driver.Gone}
			continue
		}
		e.mu.Lock()
		p, known := d.kept(e, sent, mark)
		e.mu.Unlock()
		if known {
			places[i] = p
			continue
		}
		wg.Go(func() { places[i] = d.advance(ctx, e, sent, mark, again) })
	}
	wg.Wait()
	return places
}

// renewAll renews the votes of all entries, and returns when all nodes that
// answer promptly have answered and no entry needs another one.
func (d *Driver) renewAll(ctx context.Context, entries []*entry, mark uint64) {
	parts := make([]part, len(d.nodes))
	ttl := time.Duration(0)
	for _, e := range entries {
		if e == nil {
			continue
		}
		e.mu.Lock()
		for i := range e.votes {
			v := &e.votes[i]
			if v.t == nil || v.busy || e.left {
				continue
			}
			if v.unsure || v.state == driver.Gone {
				if e.stage == granted {
					d.giveBack(e, i) // to be asked for anew
				}
				continue
			}
			parts[i].entries = append(parts[i].entries, e)
			parts[i].refs = append(parts[i].refs, driver.Ref{Ticket: v.t, State: v.state})
		}
		ttl = max(ttl, e.t.TTL)
		e.mu.Unlock()
	}
	d.askParts(ctx, parts, ttl, d.renewAt, func() bool { return d.enough(entries, mark) })
}

// enough says whether the answers so far decide about all entries.
func (d *Driver) enough(entries []*entry, mark uint64) bool {
	for _, e := range entries {
		if e == nil {
			continue
		}
		e.mu.Lock()
		ok := e.stage != granted || e.confirmed(mark) >= d.quorum
		e.mu.Unlock()
		if !ok {
			return false
		}
	}
	return true
}

// confirmed counts the votes that were confirmed for the whole TTL since mark.
func (e *entry) confirmed(mark uint64) int {
	n := 0
	for i := range e.votes {
		if v := &e.votes[i]; v.state == driver.Held && !v.busy && v.mark > mark {
			n++
		}
	}
	return n
}

// renewAt renews at one node and takes the answers.
func (d *Driver) renewAt(ctx context.Context, n *node, its part) error {
	sent, mark := time.Now(), d.marks.Add(1)
	ps, err := n.d.Renew(ctx, its.refs)
	for i, e := range its.entries {
		p := driver.Place{Err: err}
		if err == nil {
			p = ps[i]
		}
		e.mu.Lock()
		if v := &e.votes[n.at]; v.t != nil && v.t.ID == its.refs[i].ID && !v.busy && !e.left {
			if v.err = p.Err; p.Err == nil && v.state != driver.Gone && p.State >= v.state {
				v.state, v.place = p.State, p
				if p.State != driver.Gone {
					v.until, v.mark = sent.Add(p.Lease), mark
				}
				if p.Token != 0 {
					v.token = p.Token
				}
			}
		}
		e.signal()
		e.mu.Unlock()
		if err == nil && p.Err != nil && driver.ClassOf(p.Err) != driver.Refused {
			err = p.Err
		}
	}
	return err
}

// kept says what became of an entry by a renewal sent then, if that is known
// without going for the majority. The lock is held.
func (d *Driver) kept(e *entry, sent time.Time, mark uint64) (driver.Place, bool) {
	if e.left { // what the nodes say is of the leaving
		return driver.Place{State: driver.Gone}, true
	}
	switch e.stage {
	case over:
		return driver.Place{State: driver.Gone}, true
	case inLine:
		if e.home < 0 {
			return driver.Place{}, false
		}
		home := &e.votes[e.home]
		switch {
		case home.t != nil && home.err == nil && !home.busy && home.state == driver.Waiting && home.mark > mark:
			return e.waits(home, sent), true
		case home.t != nil && home.state == driver.Gone && home.err == nil:
			d.finish(e)
			return driver.Place{State: driver.Gone}, true
		}
		return driver.Place{}, false
	case granted:
		possible, confirmed := 0, e.confirmed(mark)
		var errs []error
		for i := range e.votes {
			v := &e.votes[i]
			switch {
			case v.t == nil || v.state == driver.Gone:
			default:
				possible++
				if v.err != nil {
					errs = append(errs, fmt.Errorf("node %d: %w", i+1, v.err))
				}
			}
		}
		switch {
		case possible < d.quorum:
			d.finish(e)
			return driver.Place{State: driver.Gone}, true
		case confirmed >= d.quorum:
			d.refill(e)
			return e.held(d.quorum, sent), true
		case e.since > mark:
			return driver.Place{}, false // granted during the renewal
		}
		return driver.Place{Err: d.short(confirmed, "have confirmed", errs)}, true
	}
	return driver.Place{}, false
}

// finish makes an entry Gone for good. The lock is held.
func (d *Driver) finish(e *entry) {
	e.stage, e.left = over, true
	d.giveAllBack(e, -1)
	d.forget(e.t.ID, true)
	e.signal()
}

// refill asks nodes for votes that a confirmed hold has lost or never had.
func (d *Driver) refill(e *entry) {
	for i, n := range d.nodes {
		v := &e.votes[i]
		if v.busy || !n.prompt() || v.t != nil && v.state == driver.Held {
			continue
		}
		d.giveBack(e, i)
		d.vote(e, i, false, e.t.TTL, e.token, nil)
	}
}

// advance goes for the majority with an entry that is not granted: its turn at
// home has come, its home has failed, or it stands nowhere.
func (d *Driver) advance(ctx context.Context, e *entry, sent time.Time, mark uint64, again bool) driver.Place {
	if err := d.take(ctx, e); err != nil {
		return driver.Place{Err: err}
	}
	e.mu.Lock()
	if e.stage == granted {
		e.mu.Unlock()
		e.release()
		if again {
			return d.keep(ctx, []*entry{e}, sent, false)[0]
		}
		return driver.Place{Err: driver.Errorf(driver.Unknown, "too few nodes have confirmed")}
	}
	defer e.release()
	defer e.mu.Unlock()
	if p, known := d.kept(e, sent, mark); known {
		return p
	}
	if e.home < 0 || e.stage == inLine && !e.votes[e.home].holds(time.Now()) {
		d.giveAllBack(e, -1)
		e.home = -1
		d.crowded.set(e.t.Name)
		if err := d.start(e, true, nil); err != nil {
			return driver.Place{Err: err}
		}
	}
	p, err := d.pursue(ctx, e, true, sent)
	if err != nil {
		return driver.Place{Err: err}
	}
	return p
}
