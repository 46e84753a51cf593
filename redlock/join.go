package redlock

import (
	"context"
	"slices"
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
	e := d.enter(t)
	if e == nil {
		return driver.Status{State: driver.Gone}, nil
	}
	sent := time.Now()
	if err := e.takeTurn(ctx); err != nil {
		return driver.Status{}, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.leaving && e.State != driver.Gone { // it may have its votes
		e.releaseTurn()
		return driver.Status{}, driver.Errorf(driver.NotDone, "too few nodes have confirmed that the ticket has left")
	}
	if e.State != 0 {
		e.releaseTurn()
		return e.rejoinLocked(ctx, wait, sent)
	}
	defer e.releaseTurn()
	s := seek{e, wait, sent}
	if e.home < 0 {
		e.mu.Unlock() // two entries are never locked at once
		old := d.takeReplaced(t)
		e.mu.Lock()
		if err := s.startLocked(old); err != nil {
			return driver.Status{}, err
		}
	}
	return s.runLocked(ctx)
}

// takeTurn waits until no other goroutine tries to win the majority for an
// entry, and takes the turn.
func (e *entry) takeTurn(ctx context.Context) error {
	select {
	case e.turn <- struct{}{}:
		return nil
	default:
	}
	select {
	case e.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
	case <-e.nodes.life.Done():
	}
	return e.nodes.ended(ctx)
}

func (e *entry) releaseTurn() { <-e.turn }

// rejoinLocked handles a Join of a ticket that has, or had, a place. It unlocks
// e.mu while it renews.
func (e *entry) rejoinLocked(ctx context.Context, wait bool, sent time.Time) (driver.Status, error) {
	e.mu.Unlock()
	p := e.d.renewEntries(ctx, []*entry{e}, sent, true)[0]
	e.mu.Lock()
	if p.Err != nil {
		return driver.Status{}, p.Err
	}
	if p.State == driver.Waiting && !wait {
		return e.goneLocked(ctx, p.Holder), nil
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
	e.Left()
	votes := slices.Clone(e.votes)
	for i := range e.votes {
		if v := &votes[i]; v.busy || v.joinUnknown || v.old != nil || v.State != driver.Held {
			e.giveBackLocked(i)
			*v = vote{}
		}
		e.votes[i] = vote{}
	}
	e.signalLocked()
	return votes
}
