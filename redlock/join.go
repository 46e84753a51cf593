package redlock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// Join implements [driver.Driver].
func (d *Driver) Join(ctx context.Context, t *driver.Ticket, wait bool) (driver.Status, error) {
	if err := d.nodes.checkOpen(ctx); err != nil {
		return driver.Status{}, err
	}
	if t.Limit != 1 || t.Units != 1 || t.Owner != "" {
		return driver.Status{}, driver.Errorf(driver.Refused, "redlock has only mutexes without named owners")
	}
	old := d.takeReplaced(t)
	e := d.enter(t)
	if e == nil {
		return driver.Status{State: driver.Gone}, nil
	}
	sent := time.Now()
	if err := d.takeTurn(ctx, e); err != nil {
		return driver.Status{}, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.stage != joining {
		e.releaseTurn()
		return d.rejoinLocked(ctx, e, wait, sent)
	}
	defer e.releaseTurn()
	if e.home < 0 {
		if err := d.startLocked(e, wait, old); err != nil {
			return driver.Status{}, err
		}
	}
	return d.seekLocked(ctx, e, wait, sent)
}

// takeTurn waits until no other goroutine tries to win the majority for an
// entry, and takes the turn.
func (d *Driver) takeTurn(ctx context.Context, e *entry) error {
	select {
	case e.turn <- struct{}{}:
		return nil
	default:
	}
	select {
	case e.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
	case <-d.nodes.life.Done():
	}
	return d.nodes.ended(ctx)
}

func (e *entry) releaseTurn() { <-e.turn }

// rejoinLocked handles a Join of a ticket that has, or had, a place. It unlocks
// e.mu while it renews.
func (d *Driver) rejoinLocked(ctx context.Context, e *entry, wait bool, sent time.Time) (driver.Status, error) {
	e.mu.Unlock()
	p := d.renewEntries(ctx, []*entry{e}, sent, true)[0]
	e.mu.Lock()
	if p.Err != nil {
		return driver.Status{}, p.Err
	}
	if p.State == driver.Waiting && !wait {
		return d.goneLocked(ctx, e, p.Holder), nil
	}
	return p, nil
}

// takeReplaced returns the votes of the ticket that t replaces, and ends that
// ticket's entry; nil if there is none.
func (d *Driver) takeReplaced(t *driver.Ticket) []vote {
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
		if v := &votes[i]; v.busy || v.joinUnknown || v.old != nil || v.state != driver.Held {
			d.giveBackLocked(e, i)
			*v = vote{}
		}
		e.votes[i] = vote{}
	}
	e.signalLocked()
	return votes
}

// startLocked asks the nodes for the first time, all at once. It asks the home
// alone if the name was contended recently, or if a ticket is replaced, whose
// successors come first.
func (d *Driver) startLocked(e *entry, wait bool, old []vote) error {
	e.home = d.nodes.homeOf(e.t.Name, wait, func(int) bool { return false })
	for i := range old {
		if old[i].t != nil && i != e.home {
			e.votes[i] = old[i]
			d.giveBackLocked(e, i)
		}
	}
	if e.home < 0 {
		d.forget(e.t.ID, false)
		return driver.Errorf(driver.Unavailable, "no node answers")
	}
	homeOnly := old != nil || d.contended.has(e.t.Name)
	var oldVote *driver.Ticket
	if old != nil {
		oldVote = old[e.home].t
	}
	minToken := d.minTokenLocked(e, wait)
	d.requestVoteLocked(e, e.home, wait, e.t.TTL, minToken, oldVote)
	if !homeOnly {
		d.voteElsewhereLocked(e, e.t.TTL, minToken)
	}
	return nil
}

// minTokenLocked returns the minimum token to propose. While all nodes answer,
// it is 0: the middle one of their tokens is right, and asking for no minimum
// is faster.
func (d *Driver) minTokenLocked(e *entry, wait bool) uint64 {
	tries := e.rewrites
	if wait { // its turn may come later
		tries = max(tries, 3)
	}
	for _, n := range d.nodes.all {
		if !n.inTime() {
			return d.tokens.ahead(time.Now(), lead(tries, e.t.TTL))
		}
	}
	return 0
}

// lead returns how far ahead of the fastest clock a minimum token is set. It
// grows with each try that failed because a clock was faster, or because a slow
// node answered when its clock was past the minimum token. It stays below a
// quarter of the TTL: a node that comes back without its data grants nothing
// for one TTL, and then its clock alone has to put it past all minimum tokens.
func lead(tries int, ttl time.Duration) time.Duration {
	return min(2*time.Millisecond<<(3*min(tries, 3)), ttl/4)
}

// voteElsewhereLocked asks all usable nodes that have no vote of e's, except
// the home.
func (d *Driver) voteElsewhereLocked(e *entry, ttl time.Duration, minToken uint64) (asked bool) {
	for i, n := range d.nodes.all {
		if v := &e.votes[i]; i != e.home && n.usable() && v.t == nil {
			d.requestVoteLocked(e, i, false, ttl, minToken, nil)
			asked = true
		}
	}
	return asked
}

// failLocked ends a try that has no majority and cannot win one now. It gives
// back the votes, except the home's: the home's holder tries again. After some
// tries that vote goes back as well, and the ticket goes to the end of the
// queue, in case the other nodes are held by a ticket that waits for this very
// vote.
func (d *Driver) failLocked(ctx context.Context, e *entry, wait bool, sent time.Time) (driver.Status, error) {
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
		case v.t == nil && !d.nodes.all[i].usable():
			broken++
			errs = append(errs, fmt.Errorf("node %d does not answer", i+1))
		case v.state == driver.Gone:
			refused++
			holder = v.place.Holder
		}
	}
	home := &e.votes[e.home]
	holdsHome := home.holds(now)
	e.fails++
	if broken >= d.nodes.quorum {
		return driver.Status{}, d.tooFewLocked(e, errs, unknown)
	}
	if !wait {
		return d.goneLocked(ctx, e, holder), nil
	}
	d.contended.set(e.t.Name)
	if holdsHome && e.fails < triesAtHome {
		d.giveAllBackLocked(e, e.home)
		e.stage = waiting
		p := e.waitsLocked(home, sent)
		p.Recheck, p.Ahead = e.backOffLocked(), -1
		if holder != "" {
			p.Holder = holder
		}
		return p, nil
	}
	// The ticket has no place at any node until its next try.
	d.giveAllBackLocked(e, -1)
	e.stage = waiting
	return driver.Status{State: driver.Waiting, Lease: e.t.TTL, Ahead: -1, Recheck: e.backOffLocked(), Holder: holder}, nil
}

// triesAtHome is the number of tries after which a ticket that holds the home
// lets others go first.
const triesAtHome = 6

// tooFewLocked gives back all votes of a joining entry, and makes one error of
// the nodes' errors.
func (d *Driver) tooFewLocked(e *entry, errs []error, unknown bool) error {
	whole := d.nodes.unavailable(len(d.nodes.all)-len(errs), errs, "too few nodes take part: %w", errors.Join(errs...))
	class := driver.ClassOf(whole)
	if _, passes := driver.IsNotReady(whole); unknown && e.stage == joining && class == driver.Unavailable && !passes {
		class = driver.Unknown
	}
	if e.stage == joining {
		d.giveAllBackLocked(e, -1)
		e.home = -1
	}
	text := errors.Join(errs...)
	if e.stage == joining && class != driver.Unknown {
		d.forget(e.t.ID, false)
	}
	if class == driver.Refused {
		if le, ok := errors.AsType[*driver.LimitError](text); ok {
			return &driver.LimitError{Name: e.t.Name, Have: le.Have, Want: le.Want}
		}
	}
	if class != driver.Unknown {
		return whole
	}
	return driver.Errorf(class, "too few nodes take part: %w", text)
}

// goneLocked gives back all votes and answers Gone, for a Join without wait, or
// if the home does not have the ticket. It unlocks e.mu while it waits for the
// nodes.
func (d *Driver) goneLocked(ctx context.Context, e *entry, holder string) driver.Status {
	d.giveAllBackLocked(e, -1)
	e.stage, e.left = over, true
	e.signalLocked()
	e.mu.Unlock()
	d.forget(e.t.ID, false)
	d.awaitReturned(ctx, e)
	e.mu.Lock()
	return driver.Status{State: driver.Gone, Holder: holder}
}
