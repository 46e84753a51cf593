package redlock

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// Renew implements [driver.Driver]: it sends one request to each node, for all
// tickets. A majority confirms a hold. Then votes that were lost, by a node
// that restarted for example, are asked for again, so that they do not erode.
func (d *Driver) Renew(ctx context.Context, refs []driver.Ref) ([]driver.Status, error) {
	if err := d.nodes.checkOpen(ctx); err != nil {
		return nil, err
	}
	entries := make([]*entry, len(refs))
	for i, r := range refs {
		entries[i] = d.find(r.ID)
	}
	return d.renewEntries(ctx, entries, time.Now(), true), nil
}

// renewEntries renews entries; nil ones are Gone. With again, entries granted
// in the meantime are renewed once more, because not all of their votes were.
func (d *Driver) renewEntries(ctx context.Context, entries []*entry, sent time.Time, again bool) []driver.Status {
	mark := d.marks.Add(1)
	d.renewAll(ctx, entries, mark)
	places := make([]driver.Status, len(entries))
	var wg sync.WaitGroup
	for i, e := range entries {
		if e == nil {
			places[i] = driver.Status{State: driver.Gone}
			continue
		}
		e.mu.Lock()
		p, known := e.renewedLocked(sent, mark)
		e.mu.Unlock()
		if known {
			places[i] = p
			continue
		}
		wg.Go(func() { places[i] = e.seekAgain(ctx, sent, mark, again) })
	}
	wg.Wait()
	return places
}

// renewAll renews the votes of all entries. It returns once all nodes that are
// in time have answered and the answers decide about all entries.
func (d *Driver) renewAll(ctx context.Context, entries []*entry, mark uint64) {
	batches := make([]nodeBatch, len(d.nodes.all))
	ttl := time.Duration(0)
	for _, e := range entries {
		if e == nil {
			continue
		}
		e.mu.Lock()
		for i := range e.votes {
			v := &e.votes[i]
			if v.t == nil || v.busy || e.MustLeave {
				continue
			}
			if v.joinUnknown || v.State == driver.Gone {
				if e.State == driver.Held {
					e.giveBackLocked(i) // refillLocked asks for it anew
				}
				continue
			}
			v.err = nil // the error of an earlier request
			batches[i].entries = append(batches[i].entries, e)
			batches[i].refs = append(batches[i].refs, driver.Ref{Ticket: v.t, State: v.State})
		}
		ttl = max(ttl, e.t.TTL)
		e.mu.Unlock()
	}
	d.nodes.askNodes(ctx, batches, ttl, d.renewAt, func() bool {
		return all(entries, func(e *entry) bool { return e.State != driver.Held || e.confirmedLocked(mark) >= d.nodes.quorum })
	})
}

// confirmedLocked counts the votes that were confirmed for the whole TTL since
// mark.
func (e *entry) confirmedLocked(mark uint64) int {
	n := 0
	for i := range e.votes {
		if v := &e.votes[i]; v.State == driver.Held && !v.busy && v.mark > mark {
			n++
		}
	}
	return n
}

// renewAt renews tickets at one node and handles the answers.
func (d *Driver) renewAt(ctx context.Context, n *node, batch nodeBatch) error {
	sent, mark := time.Now(), d.marks.Add(1)
	ps, err := n.d.Renew(ctx, batch.refs)
	for i, e := range batch.entries {
		p := driver.Status{Err: err}
		if err == nil {
			p = ps[i]
		}
		e.mu.Lock()
		if v := &e.votes[n.at]; v.t != nil && v.t.ID == batch.refs[i].ID && !v.busy && !e.MustLeave {
			if v.err = p.Err; p.Err == nil && v.Renewed(p, sent) {
				v.place, v.mark = p, mark
			}
		}
		e.signalLocked()
		e.mu.Unlock()
		if err == nil && p.Err != nil && driver.ClassOf(p.Err) != driver.Refused {
			err = p.Err
		}
	}
	return err
}

// renewedLocked returns the status of an entry after a renewal sent at that
// time, and whether the status is known without another try for the majority.
func (e *entry) renewedLocked(sent time.Time, mark uint64) (driver.Status, bool) {
	if e.MustLeave { // the nodes' answers are about its Leave
		return driver.Status{State: driver.Gone}, true
	}
	switch e.State {
	case driver.Gone:
		return driver.Status{State: driver.Gone}, true
	case driver.Waiting:
		if e.home < 0 {
			return driver.Status{}, false
		}
		home := &e.votes[e.home]
		switch {
		case home.t != nil && home.err == nil && !home.busy && home.State == driver.Waiting && home.mark > mark:
			return e.waitsLocked(home, sent), true
		case home.t != nil && home.State == driver.Gone && home.err == nil:
			e.endLocked()
			return driver.Status{State: driver.Gone}, true
		}
		return driver.Status{}, false
	case driver.Held:
		possible, confirmed := 0, e.confirmedLocked(mark)
		var errs []error
		for i := range e.votes {
			if v := &e.votes[i]; v.t != nil && v.State != driver.Gone {
				possible++
				if v.err != nil {
					errs = append(errs, fmt.Errorf("node %d: %w", i+1, v.err))
				}
			}
		}
		switch {
		case possible < e.nodes.quorum:
			e.endLocked()
			return driver.Status{State: driver.Gone}, true
		case confirmed >= e.nodes.quorum:
			e.refillLocked()
			return e.heldLocked(e.nodes.quorum, sent), true
		case e.grantMark > mark:
			return driver.Status{}, false // granted during the renewal
		}
		return driver.Status{Err: e.nodes.short(confirmed, "have confirmed", errs)}, true
	}
	return driver.Status{}, false
}

// refillLocked asks nodes for votes that a confirmed hold has lost or never
// had.
func (e *entry) refillLocked() {
	for i, n := range e.nodes.all {
		v := &e.votes[i]
		if v.busy || !n.inTime() || v.t != nil && v.State == driver.Held {
			continue
		}
		e.giveBackLocked(i)
		e.requestVoteLocked(i, false, e.t.TTL, e.Token, nil)
	}
}

// seekAgain tries to win the majority for an entry that is not granted: its
// turn at home has come, its home has failed, or it has no place at any node.
func (e *entry) seekAgain(ctx context.Context, sent time.Time, mark uint64, again bool) driver.Status {
	if err := e.takeTurn(ctx); err != nil {
		return driver.Status{Err: err}
	}
	e.mu.Lock()
	if e.State == driver.Held {
		e.mu.Unlock()
		e.releaseTurn()
		if again {
			return e.d.renewEntries(ctx, []*entry{e}, sent, false)[0]
		}
		return driver.Status{Err: driver.Errorf(driver.Unknown, "too few nodes have confirmed")}
	}
	defer e.releaseTurn()
	defer e.mu.Unlock()
	if p, known := e.renewedLocked(sent, mark); known {
		return p
	}
	s := seek{e, true, sent}
	if e.home < 0 || e.State == driver.Waiting && !e.votes[e.home].holds(time.Now()) {
		e.giveAllBackLocked(-1)
		e.home = -1
		e.d.contended.set(e.t.Name)
		if err := s.startLocked(nil); err != nil {
			return driver.Status{Err: err}
		}
	}
	p, err := s.runLocked(ctx)
	p.Err = err
	return p
}
