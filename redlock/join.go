package redlock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// Join implements [driver.Driver].
func (d *Driver) Join(ctx context.Context, t *driver.Ticket, wait bool) (driver.Place, error) {
	if err := d.before(ctx); err != nil {
		return driver.Place{}, err
	}
	if t.Limit != 1 || t.Units != 1 || t.Owner != "" {
		return driver.Place{}, driver.Errorf(driver.Refused, "redlock has mutexes without named owners only")
	}
	old := d.replaced(t)
	e := d.enter(t)
	if e == nil {
		return driver.Place{State: driver.Gone}, nil
	}
	sent := time.Now()
	if err := d.take(ctx, e); err != nil {
		return driver.Place{}, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.stage != fresh {
		e.release()
		return d.again(ctx, e, wait, sent)
	}
	defer e.release()
	if e.home < 0 {
		if err := d.start(e, wait, old); err != nil {
			return driver.Place{}, err
		}
	}
	return d.pursue(ctx, e, wait, sent)
}

// take waits for its turn to go for the majority with an entry.
func (d *Driver) take(ctx context.Context, e *entry) error {
	select {
	case e.turn <- struct{}{}:
		return nil
	default:
	}
	select {
	case e.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
	case <-d.life.Done():
	}
	return d.ended(ctx)
}

func (e *entry) release() { <-e.turn }

// again is a Join of a ticket that has, or had, a place. The lock is held.
func (d *Driver) again(ctx context.Context, e *entry, wait bool, sent time.Time) (driver.Place, error) {
	e.mu.Unlock()
	p := d.keep(ctx, []*entry{e}, sent, true)[0]
	e.mu.Lock()
	if p.Err != nil {
		return driver.Place{}, p.Err
	}
	if p.State == driver.Waiting && !wait {
		return d.nothing(ctx, e, p.Holder), nil
	}
	return p, nil
}

// replaced returns the votes of the ticket that t replaces, which leaves with
// this call, or nil.
func (d *Driver) replaced(t *driver.Ticket) []vote {
	if t.Replaces == nil {
		return nil
	}
	e := d.find(t.Replaces.ID)
	if e == nil {
		return nil
	}
	d.forget(t.Replaces.ID, false)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.left, e.stage = true, over
	votes := make([]vote, len(e.votes))
	copy(votes, e.votes)
	for i := range e.votes {
		if v := &votes[i]; v.busy || v.unsure || v.old != nil || v.state != driver.Held {
			d.giveBack(e, i)
			*v = vote{}
		}
		e.votes[i] = vote{}
	}
	e.signal()
	return votes
}

// start asks the nodes for the first time: all at once, or the home alone where
// others are about, or where a ticket is replaced: its successors come first.
func (d *Driver) start(e *entry, wait bool, old []vote) error {
	e.home = d.homeOf(e.t.Name, wait, func(int) bool { return false })
	for i := range old {
		if old[i].t != nil && i != e.home {
			e.votes[i] = old[i]
			d.giveBack(e, i)
		}
	}
	if e.home < 0 {
		d.forget(e.t.ID, false)
		return driver.Errorf(driver.Unavailable, "no node answers")
	}
	alone := old != nil || d.crowded.has(e.t.Name)
	var was *driver.Ticket
	if old != nil {
		was = old[e.home].t
	}
	floor := d.floor(e, wait)
	d.vote(e, e.home, wait, e.t.TTL, floor, was)
	if !alone {
		d.voteElsewhere(e, e.t.TTL, floor)
	}
	return nil
}

// floor is the token to propose. While all nodes answer, the middle one of what
// they give is right, and asking for none is quicker.
func (d *Driver) floor(e *entry, wait bool) uint64 {
	tries := e.rewrites
	if wait { // its turn may come later
		tries = max(tries, 3)
	}
	for _, n := range d.nodes {
		if !n.prompt() {
			return d.tokens.ahead(time.Now(), lead(tries, e.t.TTL))
		}
	}
	return 0
}

// lead is by how much a floor is ahead of the fastest clock: more after each
// try that a clock was faster than, or that a slow node answered when its clock
// was past it. It stays below a quarter of the TTL: a node that comes back without
// its data grants nothing for one, and has to be past all floors by its clock
// alone when it does.
func lead(tries int, ttl time.Duration) time.Duration {
	return min(2*time.Millisecond<<(3*min(tries, 3)), ttl/4)
}

// voteElsewhere asks all nodes that can be asked and have no vote of e's, except
// the home.
func (d *Driver) voteElsewhere(e *entry, ttl time.Duration, floor uint64) (asked bool) {
	for i, n := range d.nodes {
		if v := &e.votes[i]; i != e.home && n.usable() && v.t == nil {
			d.vote(e, i, false, ttl, floor, nil)
			asked = true
		}
	}
	return asked
}

// failed ends a try that has no majority and will not get one now. The votes
// go back, except the home's: its holder tries again, and after some tries goes
// to the end of the line, for the case that the others are held by somebody who
// waits for this very vote.
func (d *Driver) failed(ctx context.Context, e *entry, wait bool, sent time.Time) (driver.Place, error) {
	var holder string
	refused, broken := 0, 0
	var errs []error
	unknown := false
	now := time.Now()
	for i := range e.votes {
		v := &e.votes[i]
		switch {
		case v.err != nil:
			broken++
			unknown = unknown || driver.ClassOf(v.err) == driver.Unknown
			errs = append(errs, fmt.Errorf("node %d: %w", i+1, v.err))
		case v.t == nil && !d.nodes[i].usable():
			broken++
			errs = append(errs, fmt.Errorf("node %d does not answer", i+1))
		case v.state == driver.Gone:
			refused++
			holder = v.place.Holder
		}
	}
	home := &e.votes[e.home]
	stands := home.holds(now)
	e.fails++
	if broken >= d.quorum {
		return driver.Place{}, d.broken(e, errs, unknown)
	}
	if !wait {
		return d.nothing(ctx, e, holder), nil
	}
	d.crowded.set(e.t.Name)
	if stands && e.fails < triesAtHome {
		d.giveAllBack(e, e.home)
		e.stage = inLine
		p := e.waits(home, sent)
		p.Recheck, p.Ahead = e.backOff(), -1
		if holder != "" {
			p.Holder = holder
		}
		return p, nil
	}
	// Nowhere for a while.
	d.giveAllBack(e, -1)
	e.stage = inLine
	return driver.Place{State: driver.Waiting, Lease: e.t.TTL, Ahead: -1, Recheck: e.backOff(), Holder: holder}, nil
}

// triesAtHome is how often one who holds the home tries before it lets others.
const triesAtHome = 6

// broken gives all votes back and makes one error of those of the nodes.
func (d *Driver) broken(e *entry, errs []error, unknown bool) error {
	class := driver.Unavailable
	refused := 0
	for _, err := range errs {
		if driver.ClassOf(err) == driver.Refused {
			refused++
		}
	}
	switch {
	case refused >= d.quorum:
		class = driver.Refused
	case unknown && e.stage == fresh:
		class = driver.Unknown
	}
	if e.stage == fresh {
		d.giveAllBack(e, -1)
		e.home = -1
	}
	text := errors.Join(errs...)
	if e.stage == fresh && class != driver.Unknown {
		d.forget(e.t.ID, false)
	}
	if class == driver.Refused {
		if le, ok := errors.AsType[*driver.LimitError](text); ok {
			return &driver.LimitError{Name: e.t.Name, Have: le.Have, Want: le.Want}
		}
	}
	return driver.Errorf(class, "too few nodes take part: %w", text)
}

// nothing gives everything back and answers Gone to who does not want to wait,
// or whose ticket the home has not.
func (d *Driver) nothing(ctx context.Context, e *entry, holder string) driver.Place {
	d.giveAllBack(e, -1)
	e.stage, e.left = over, true
	e.signal()
	e.mu.Unlock()
	d.forget(e.t.ID, false)
	d.returned(ctx, e)
	e.mu.Lock()
	return driver.Place{State: driver.Gone, Holder: holder}
}
