package redlock

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// pursue goes for the majority until it is won, or until it is clear that it
// cannot be now. The lock is held, and the turn.
//
// The home is asked first, or at the same time. Whoever waits there waits: votes
// of other nodes are given back. Whoever holds there is the only one who does,
// and goes for the others; so equal contenders do not split the votes.
func (d *Driver) pursue(ctx context.Context, e *entry, wait bool, sent time.Time) (driver.Place, error) {
	d.rounds.Add(1)
	asked := false    // the other nodes, since the home is held
	wrote := 0        // rounds to write a token back
	overtime := false // somebody has been slow since the last request
	slow := time.NewTimer(d.patience())
	defer slow.Stop()
	for {
		now := time.Now()
		held, prompt, late := d.tally(e, now)
		home := &e.votes[e.home]
		moved := false
		switch {
		case e.left || e.stage == over:
			return driver.Place{State: driver.Gone}, nil
		case home.busy && d.nodes[e.home].homely():
			// Nothing is decided without the home, until it has failed or hangs.
		case !home.busy && home.state == driver.Waiting:
			d.crowded.set(e.t.Name)
			d.giveAllBack(e, e.home)
			e.stage = inLine
			return e.waits(home, sent), nil
		case !home.busy && home.state == driver.Gone && home.err == nil && home.t != nil:
			d.crowded.set(e.t.Name)
			return d.nothing(ctx, e, home.place.Holder), nil
		case held >= d.quorum:
			if token, ok := final(e.tokensHeld(now), d.quorum); ok {
				return d.won(e, token, sent), nil
			}
			if prompt == 0 && wrote < 8 {
				wrote++
				moved = d.writeBack(e, wait, now)
			}
			if !moved && prompt+late == 0 {
				return d.failed(ctx, e, wait, sent)
			}
		case !home.holds(now) && !asked:
			// The home failed: another one takes its part.
			if !d.rehome(e, wait) {
				return d.failed(ctx, e, wait, sent)
			}
			moved = true
		case !asked && e.back > 0 && !overtime:
			// What it replaces leaves the other nodes first.
		case !asked && held+prompt+late < len(e.votes):
			asked = true
			ttl := home.until.Sub(now)
			if ttl < d.traits.MinTTL/5 {
				return d.failed(ctx, e, wait, sent)
			}
			moved = d.voteElsewhere(e, ttl, home.token)
		case held+prompt+late < d.quorum:
			return d.failed(ctx, e, wait, sent)
		}
		if moved {
			overtime = false
			slow.Reset(d.patience())
			continue
		}
		changed := e.changed
		e.mu.Unlock()
		var err error
		select {
		case <-changed:
		case <-slow.C:
			if d.overdue(e, overtime); !overtime {
				slow.Reset(mostPatience)
			}
			overtime = true
		case <-ctx.Done():
			err = d.ended(ctx)
		case <-d.life.Done():
			err = d.ended(ctx)
		}
		e.mu.Lock()
		if err != nil {
			return driver.Place{}, err
		}
	}
}

// overdue takes the nodes that still owe an answer for slow ones, and the second
// time for ones that hang.
func (d *Driver) overdue(e *entry, again bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i := range e.votes {
		if e.votes[i].busy {
			d.nodes[i].slow.Store(true)
			if again {
				d.nodes[i].hung.Store(true)
			}
		}
	}
}

// rehome goes to the next node of the name's order that can be its home. It
// returns false when there is none.
func (d *Driver) rehome(e *entry, wait bool) bool {
	next := d.homeOf(e.t.Name, wait, func(i int) bool { return i == e.home || e.votes[i].err != nil })
	if next < 0 {
		return false
	}
	if v := &e.votes[next]; !v.busy && v.state != driver.Held {
		if v.state == driver.Gone {
			*v = vote{}
		}
		d.giveBack(e, next)
		d.vote(e, next, wait, e.t.TTL, d.floor(e, wait), nil)
	}
	e.home = next
	return true
}

// writeBack makes votes anew, with a floor, so that a majority remembers the
// token. It returns false when there is nothing to write.
//
// Where others may wait at home, they are granted first, and this one stands in
// line again and comes back with a floor that is ahead of all clocks. Nothing
// else is raised then: it would be above the floors of the others in the line.
func (d *Driver) writeBack(e *entry, wait bool, now time.Time) bool {
	var top uint64
	for _, t := range e.tokensHeld(now) {
		top = max(top, t)
	}
	home := &e.votes[e.home]
	floor := max(top, d.tokens.ahead(now, lead(e.rewrites, e.t.TTL)))
	alone := home.holds(now) && d.crowded.has(e.t.Name)
	if alone && home.token >= top {
		floor, alone = top, false
	}
	e.rewrites++
	wrote := false
	for i := range e.votes {
		v := &e.votes[i]
		if !v.holds(now) || v.token >= floor || alone && i != e.home {
			continue
		}
		d.vote(e, i, wait && i == e.home, v.until.Sub(now), floor, v.t)
		wrote = true
	}
	return wrote
}

// won makes the entry a holder.
func (d *Driver) won(e *entry, token uint64, sent time.Time) driver.Place {
	e.stage, e.token, e.fails, e.since = granted, token, 0, d.marks.Add(1)
	d.grants.Add(1)
	for i := range e.votes {
		// What is unsure may be the ticket that this one replaced.
		if v := &e.votes[i]; v.state == driver.Waiting || v.unsure && !v.busy {
			d.giveBack(e, i)
		}
	}
	return e.held(d.quorum, sent)
}

func (e *entry) held(quorum int, sent time.Time) driver.Place {
	return driver.Place{State: driver.Held, Token: e.token, Lease: e.kept(quorum).Sub(sent)}
}

// waits is the place of an entry that stands in line at home. How many are ahead
// is not known: some may stand elsewhere, and the home's holder be in line, too.
func (e *entry) waits(home *vote, sent time.Time) driver.Place {
	p := home.place
	p.State, p.Token, p.Err, p.Ahead = driver.Waiting, 0, nil, -1
	p.Lease = home.until.Sub(sent)
	return p
}
