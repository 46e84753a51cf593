package redlock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// seek is one try to win the majority for an entry. The caller has taken the
// entry's turn.
type seek struct {
	e    *entry
	wait bool      // the ticket may wait in a queue
	sent time.Time // when the core's request was sent; leases count from then
}

// runLocked asks for votes until the majority is won, or until it is clear
// that it cannot be won now. It unlocks the entry while it waits for answers.
//
// The home is asked first, or at the same time as the others. A ticket that
// waits at the home gives back the votes of other nodes. Only one ticket at a
// time holds at the home, and only that ticket asks the others; so equal
// contenders do not split the votes.
func (s seek) runLocked(ctx context.Context) (driver.Status, error) {
	s.e.d.rounds.Add(1)
	asked := false    // the other nodes were asked, after the home was won
	wrote := 0        // rounds that raised the votes' tokens
	overtime := false // nodeWait has passed once since the last request
	pause := maxNodeWait
	slow := time.NewTimer(s.e.nodes.nodeWait())
	defer slow.Stop()
	for {
		now := time.Now()
		held, inTime, late := s.e.tallyLocked(now)
		home := &s.e.votes[s.e.home]
		moved := false
		switch {
		case s.e.MustLeave || s.e.State == driver.Gone:
			return driver.Status{State: driver.Gone}, nil
		case home.busy && s.e.nodes.all[s.e.home].canBeHome():
			// Nothing is decided without the home, until the home has failed or
			// hangs.
		case !home.busy && home.State == driver.Waiting:
			s.e.d.contended.set(s.e.t.Name)
			s.e.giveAllBackLocked(s.e.home)
			s.e.State = driver.Waiting
			return s.e.waitsLocked(home, s.sent), nil
		case !home.busy && home.State == driver.Gone && home.err == nil && home.t != nil && s.wait && !home.waits:
			// It was asked for its vote alone, before it became the home, and has nothing
			// to give back: a Join without an answer leaves an error.
			s.e.requestVoteLocked(s.e.home, true, s.e.t.TTL, s.minTokenLocked(), nil)
			moved = true
		case !home.busy && home.State == driver.Gone && home.err == nil && home.t != nil:
			s.e.d.contended.set(s.e.t.Name)
			return s.e.goneLocked(ctx, home.place.Holder), nil
		case held >= s.e.nodes.quorum:
			if token, ok := final(s.e.tokensHeldLocked(now), s.e.nodes.quorum); ok {
				return s.wonLocked(token), nil
			}
			if inTime == 0 && wrote < 8 {
				wrote++
				moved = s.writeBackLocked(now)
			}
			if !moved && inTime+late == 0 {
				return s.failLocked(ctx)
			}
		case !home.holds(now) && !asked:
			// The home failed: another node becomes the home.
			if !s.rehomeLocked() {
				return s.failLocked(ctx)
			}
			moved = true
		case !asked && s.e.back > 0 && !overtime:
			// The ticket that this one replaces leaves the other nodes first.
		case !asked && held+inTime+late < len(s.e.votes):
			asked = true
			ttl := home.Until.Sub(now)
			if ttl < s.e.d.traits.MinTTL/5 {
				return s.failLocked(ctx)
			}
			s.voteElsewhereLocked(ttl, home.Token)
			moved = true // also if nobody is left to be asked: then what is known decides
		case held+inTime+late < s.e.nodes.quorum:
			return s.failLocked(ctx)
		}
		if moved {
			overtime, pause = false, maxNodeWait
			slow.Reset(s.e.nodes.nodeWait())
			continue
		}
		changed := s.e.changed
		s.e.mu.Unlock()
		var err error
		again := false
		select {
		case <-changed:
		case <-slow.C:
			s.markSlow(overtime)
			overtime, again = true, true
			slow.Reset(pause)
			pause *= 2
		case <-ctx.Done():
			err = s.e.nodes.ended(ctx)
		case <-s.e.nodes.life.Done():
			err = s.e.nodes.ended(ctx)
		}
		s.e.mu.Lock()
		if err != nil {
			for i := range s.e.votes {
				if v := &s.e.votes[i]; v.busy {
					v.request.giveUp()
				}
			}
			return driver.Status{}, err
		}
		if again && s.wait {
			s.askRefusersLocked(time.Now())
		}
	}
}

// askRefusersLocked asks the nodes again that have refused their vote, if the home was
// won and the majority hangs on slow nodes, whose votes may still come. The ticket
// for which they have refused may have left since.
func (s seek) askRefusersLocked(now time.Time) {
	held, inTime, late := s.e.tallyLocked(now)
	home := &s.e.votes[s.e.home]
	ttl := home.Until.Sub(now)
	if s.e.MustLeave || !home.holds(now) || held+inTime >= s.e.nodes.quorum || late == 0 || ttl < s.e.d.traits.MinTTL/5 {
		return
	}
	for i, n := range s.e.nodes.all {
		if v := &s.e.votes[i]; i != s.e.home && v.t != nil && !v.busy && v.err == nil && v.State == driver.Gone && n.usable() {
			s.e.requestVoteLocked(i, false, ttl, home.Token, nil)
		}
	}
}

// markSlow marks the nodes whose answers are outstanding as slow, and with
// again also as hung.
func (s seek) markSlow(again bool) {
	s.e.mu.Lock()
	defer s.e.mu.Unlock()
	for i := range s.e.votes {
		if s.e.votes[i].busy {
			s.e.nodes.all[i].slow.Store(true)
			if again {
				s.e.nodes.all[i].hung.Store(true)
			}
		}
	}
}

// rehomeLocked moves to the next node of the name's order that can be its home.
// It returns false when there is none.
func (s seek) rehomeLocked() bool {
	next := s.e.nodes.homeOf(s.e.t.Name, s.wait, func(i int) bool { return i == s.e.home || s.e.votes[i].err != nil })
	if next < 0 {
		return false
	}
	if v := &s.e.votes[next]; !v.busy && v.State != driver.Held {
		s.e.giveBackLocked(next)
		s.e.requestVoteLocked(next, s.wait, s.e.t.TTL, s.minTokenLocked(), nil)
	}
	s.e.home = next
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
func (s seek) writeBackLocked(now time.Time) bool {
	top := slices.Max(append(s.e.tokensHeldLocked(now), 0))
	home := &s.e.votes[s.e.home]
	minToken := max(top, s.e.d.tokens.ahead(now, lead(s.e.rewrites, s.e.t.TTL)))
	homeOnly := home.holds(now) && s.e.d.contended.has(s.e.t.Name)
	if homeOnly && home.Token >= top {
		minToken, homeOnly = top, false
	}
	s.e.rewrites++
	wrote := false
	for i := range s.e.votes {
		v := &s.e.votes[i]
		if !v.holds(now) || v.Token >= minToken || homeOnly && i != s.e.home {
			continue
		}
		s.e.requestVoteLocked(i, s.wait && i == s.e.home, v.Until.Sub(now), minToken, v.t)
		wrote = true
	}
	return wrote
}

// wonLocked makes the entry a holder.
func (s seek) wonLocked(token uint64) driver.Status {
	s.e.State, s.e.Token, s.e.fails, s.e.grantMark = driver.Held, token, 0, s.e.d.marks.Add(1)
	s.e.d.grants.Add(1)
	for i := range s.e.votes {
		// A vote without an answer may still be the ticket that this one
		// replaced.
		if v := &s.e.votes[i]; v.State == driver.Waiting || v.joinUnknown && !v.busy {
			s.e.giveBackLocked(i)
		}
	}
	return s.e.heldLocked(s.e.nodes.quorum, s.sent)
}

// startLocked asks the nodes for the first time, all at once. It asks the home
// alone if the name was contended recently, or if a ticket is replaced, whose
// successors come first.
func (s seek) startLocked(old []vote) error {
	if s.e.MustLeave { // it has left since its Join came
		s.giveReplacedBackLocked(old, -1)
		return driver.Errorf(driver.NotDone, "the ticket has left")
	}
	s.e.home = s.e.nodes.homeOf(s.e.t.Name, s.wait, func(int) bool { return false })
	s.giveReplacedBackLocked(old, s.e.home)
	if s.e.home < 0 {
		s.e.d.forget(s.e.t.ID, false)
		return driver.Errorf(driver.Unavailable, "no node answers")
	}
	homeOnly := old != nil || s.e.d.contended.has(s.e.t.Name)
	var oldVote *driver.Ticket
	if old != nil {
		oldVote = old[s.e.home].t
	}
	minToken := s.minTokenLocked()
	s.e.requestVoteLocked(s.e.home, s.wait, s.e.t.TTL, minToken, oldVote)
	if !homeOnly {
		s.voteElsewhereLocked(s.e.t.TTL, minToken)
	}
	return nil
}

// giveReplacedBackLocked gives back the votes of the ticket that this one replaces, except
// that of node keep, which may be -1.
func (s seek) giveReplacedBackLocked(old []vote, keep int) {
	for i := range old {
		if old[i].t != nil && i != keep {
			s.e.votes[i] = old[i]
			s.e.giveBackLocked(i)
		}
	}
}

// minTokenLocked returns the minimum token to propose. While all nodes answer,
// it is 0: the middle one of their tokens is right, and asking for no minimum
// is faster.
func (s seek) minTokenLocked() uint64 {
	tries := s.e.rewrites
	if s.wait { // its turn may come later
		tries = max(tries, 3)
	}
	for _, n := range s.e.nodes.all {
		if !n.inTime() {
			return s.e.d.tokens.ahead(time.Now(), lead(tries, s.e.t.TTL))
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
func (s seek) voteElsewhereLocked(ttl time.Duration, minToken uint64) {
	for i, n := range s.e.nodes.all {
		if v := &s.e.votes[i]; i != s.e.home && n.usable() && v.t == nil {
			s.e.requestVoteLocked(i, false, ttl, minToken, nil)
		}
	}
}

// failLocked ends a try that has no majority and cannot win one now. It gives
// back the votes, except the home's: the home's holder tries again. After some
// tries that vote goes back as well, and the ticket goes to the end of the
// queue, in case the other nodes are held by a ticket that waits for this very
// vote.
func (s seek) failLocked(ctx context.Context) (driver.Status, error) {
	var holder string
	refused, broken := 0, 0
	var errs []error
	unknown := false
	now := time.Now()
	for i := range s.e.votes {
		v := &s.e.votes[i]
		switch {
		case v.err != nil:
			broken++
			unknown = unknown || driver.ClassOf(v.err) == driver.Unknown
			errs = append(errs, fmt.Errorf("node %d: %w", i+1, v.err))
		case v.t == nil && !s.e.nodes.all[i].usable():
			broken++
			errs = append(errs, fmt.Errorf("node %d does not answer", i+1))
		case v.State == driver.Gone:
			refused++
			holder = v.place.Holder
		}
	}
	home := &s.e.votes[s.e.home]
	holdsHome := home.holds(now)
	s.e.fails++
	if broken >= s.e.nodes.quorum {
		return driver.Status{}, s.tooFewLocked(errs, unknown)
	}
	if !s.wait {
		return s.e.goneLocked(ctx, holder), nil
	}
	s.e.d.contended.set(s.e.t.Name)
	if holdsHome && s.e.fails < triesAtHome {
		s.e.giveAllBackLocked(s.e.home)
		s.e.State = driver.Waiting
		p := s.e.waitsLocked(home, s.sent)
		p.Recheck, p.Ahead = s.e.backOffLocked(), -1
		if holder != "" {
			p.Holder = holder
		}
		return p, nil
	}
	// The ticket has no place at any node until its next try.
	s.e.giveAllBackLocked(-1)
	s.e.State = driver.Waiting
	return driver.Status{State: driver.Waiting, Lease: s.e.t.TTL, Ahead: -1, Recheck: s.e.backOffLocked(), Holder: holder}, nil
}

// triesAtHome is the number of tries after which a ticket that holds the home
// lets others go first.
const triesAtHome = 6

// tooFewLocked gives back all votes of a joining entry, and makes one error of
// the nodes' errors.
func (s seek) tooFewLocked(errs []error, unknown bool) error {
	whole := s.e.nodes.unavailable(len(s.e.nodes.all)-len(errs), errs, "too few nodes take part: %w", errors.Join(errs...))
	class := driver.ClassOf(whole)
	if _, passes := driver.IsNotReady(whole); unknown && s.e.State == 0 && class == driver.Unavailable && !passes {
		class = driver.Unknown
	}
	if s.e.State == 0 {
		s.e.giveAllBackLocked(-1)
		if s.e.home = -1; class != driver.Unknown {
			s.e.d.forget(s.e.t.ID, false)
		}
	}
	text := errors.Join(errs...)
	if class == driver.Refused {
		if le, ok := errors.AsType[*driver.LimitError](text); ok {
			return &driver.LimitError{Name: s.e.t.Name, Have: le.Have, Want: le.Want}
		}
	}
	if class != driver.Unknown {
		return whole
	}
	return driver.Errorf(class, "too few nodes take part: %w", text)
}
