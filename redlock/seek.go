package redlock

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// seekLocked asks for votes until the majority is won, or until it is clear
// that it cannot be won now. The caller has taken e.turn. It unlocks e.mu while
// it waits for answers.
//
// The home is asked first, or at the same time as the others. A ticket that
// waits at the home gives back the votes of other nodes. Only one ticket at a
// time holds at the home, and only that ticket asks the others; so equal
// contenders do not split the votes.
func (d *Driver) seekLocked(ctx context.Context, e *entry, wait bool, sent time.Time) (driver.Status, error) {
	d.rounds.Add(1)
	asked := false    // the other nodes were asked, after the home was won
	wrote := 0        // rounds that raised the votes' tokens
	overtime := false // nodeWait has passed once since the last request
	slow := time.NewTimer(d.nodes.nodeWait())
	defer slow.Stop()
	for {
		now := time.Now()
		held, inTime, late := d.tallyLocked(e, now)
		home := &e.votes[e.home]
		moved := false
		switch {
		case e.left || e.stage == over:
			return driver.Status{State: driver.Gone}, nil
		case home.busy && d.nodes.all[e.home].canBeHome():
			// Nothing is decided without the home, until the home has failed or
			// hangs.
		case !home.busy && home.state == driver.Waiting:
			d.contended.set(e.t.Name)
			d.giveAllBackLocked(e, e.home)
			e.stage = waiting
			return e.waitsLocked(home, sent), nil
		case !home.busy && home.state == driver.Gone && home.err == nil && home.t != nil:
			d.contended.set(e.t.Name)
			return d.goneLocked(ctx, e, home.place.Holder), nil
		case held >= d.nodes.quorum:
			if token, ok := final(e.tokensHeldLocked(now), d.nodes.quorum); ok {
				return d.wonLocked(e, token, sent), nil
			}
			if inTime == 0 && wrote < 8 {
				wrote++
				moved = d.writeBackLocked(e, wait, now)
			}
			if !moved && inTime+late == 0 {
				return d.failLocked(ctx, e, wait, sent)
			}
		case !home.holds(now) && !asked:
			// The home failed: another node becomes the home.
			if !d.rehomeLocked(e, wait) {
				return d.failLocked(ctx, e, wait, sent)
			}
			moved = true
		case !asked && e.back > 0 && !overtime:
			// The ticket that this one replaces leaves the other nodes first.
		case !asked && held+inTime+late < len(e.votes):
			asked = true
			ttl := home.until.Sub(now)
			if ttl < d.traits.MinTTL/5 {
				return d.failLocked(ctx, e, wait, sent)
			}
			moved = d.voteElsewhereLocked(e, ttl, home.token)
		case held+inTime+late < d.nodes.quorum:
			return d.failLocked(ctx, e, wait, sent)
		}
		if moved {
			overtime = false
			slow.Reset(d.nodes.nodeWait())
			continue
		}
		changed := e.changed
		e.mu.Unlock()
		var err error
		select {
		case <-changed:
		case <-slow.C:
			if d.markSlow(e, overtime); !overtime {
				slow.Reset(maxNodeWait)
			}
			overtime = true
		case <-ctx.Done():
			err = d.nodes.ended(ctx)
		case <-d.nodes.life.Done():
			err = d.nodes.ended(ctx)
		}
		e.mu.Lock()
		if err != nil {
			return driver.Status{}, err
		}
	}
}

// markSlow marks the nodes whose answers are outstanding as slow, and with
// again also as hung.
func (d *Driver) markSlow(e *entry, again bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i := range e.votes {
		if e.votes[i].busy {
			d.nodes.all[i].slow.Store(true)
			if again {
				d.nodes.all[i].hung.Store(true)
			}
		}
	}
}

// rehomeLocked moves to the next node of the name's order that can be its home.
// It returns false when there is none.
func (d *Driver) rehomeLocked(e *entry, wait bool) bool {
	next := d.nodes.homeOf(e.t.Name, wait, func(i int) bool { return i == e.home || e.votes[i].err != nil })
	if next < 0 {
		return false
	}
	if v := &e.votes[next]; !v.busy && v.state != driver.Held {
		if v.state == driver.Gone {
			*v = vote{}
		}
		d.giveBackLocked(e, next)
		d.requestVoteLocked(e, next, wait, e.t.TTL, d.minTokenLocked(e, wait), nil)
	}
	e.home = next
	return true
}

// writeBackLocked takes votes anew, with a higher minimum token, so that a
// majority remembers the token. It returns false when there is nothing to
// write.
//
// If other tickets may wait at home, they are granted first: this ticket waits
// in the queue again, and comes back with a minimum token ahead of all clocks.
// No other vote is raised then: its token would be above the minimum tokens of
// the others in the queue.
func (d *Driver) writeBackLocked(e *entry, wait bool, now time.Time) bool {
	var top uint64
	for _, t := range e.tokensHeldLocked(now) {
		top = max(top, t)
	}
	home := &e.votes[e.home]
	minToken := max(top, d.tokens.ahead(now, lead(e.rewrites, e.t.TTL)))
	homeOnly := home.holds(now) && d.contended.has(e.t.Name)
	if homeOnly && home.token >= top {
		minToken, homeOnly = top, false
	}
	e.rewrites++
	wrote := false
	for i := range e.votes {
		v := &e.votes[i]
		if !v.holds(now) || v.token >= minToken || homeOnly && i != e.home {
			continue
		}
		d.requestVoteLocked(e, i, wait && i == e.home, v.until.Sub(now), minToken, v.t)
		wrote = true
	}
	return wrote
}

// wonLocked makes the entry a holder.
func (d *Driver) wonLocked(e *entry, token uint64, sent time.Time) driver.Status {
	e.stage, e.token, e.fails, e.grantMark = granted, token, 0, d.marks.Add(1)
	d.grants.Add(1)
	for i := range e.votes {
		// A vote without an answer may still be the ticket that this one
		// replaced.
		if v := &e.votes[i]; v.state == driver.Waiting || v.joinUnknown && !v.busy {
			d.giveBackLocked(e, i)
		}
	}
	return e.heldLocked(d.nodes.quorum, sent)
}

func (e *entry) heldLocked(quorum int, sent time.Time) driver.Status {
	return driver.Status{State: driver.Held, Token: e.token, Lease: e.leaseEndLocked(quorum).Sub(sent)}
}

// waitsLocked returns the status of an entry that waits at home. The number of
// tickets ahead is unknown: some may wait at other nodes, and the home's holder
// may itself be waiting.
func (e *entry) waitsLocked(home *vote, sent time.Time) driver.Status {
	p := home.place
	p.State, p.Token, p.Err, p.Ahead = driver.Waiting, 0, nil, -1
	p.Lease = home.until.Sub(sent)
	return p
}
