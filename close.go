package holdfast

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// This file has the last phase of closing a client; shutdown.go has the phases before.

// finish closes the client once, and returns the result to each caller. The others
// wait on a channel, not on a mutex: time goes on in a bubble of testing/synctest.
func (s *shutdown) finish() error {
	c := s.c
	c.mu.Lock()
	first := !s.begun
	s.begun = true
	c.mu.Unlock()
	if first {
		s.err = s.close()
		close(s.finished)
	}
	<-s.finished
	return s.err
}

// close ends renewals and pushes, abandons the holds whose functions have not
// returned, and closes the driver.
func (s *shutdown) close() error {
	c := s.c
	bound := s.timeout()
	limit := time.NewTimer(bound)
	defer limit.Stop()

	c.mu.Lock()
	s.phase = phaseClosed
	close(c.done)
	c.stopPushes()
	c.mu.Unlock()

	for t := range c.renewer.heldTickets() {
		t.abandonHolds()
	}
	c.renewer.stop()
	c.lanes.stopProbes()

	settled := make(chan struct{})
	go func() {
		c.calls.Wait()
		c.cleaner.wait()
		close(settled)
	}()
	var err error
	select {
	case <-settled:
	case <-limit.C:
		err = storeError("close", "", driver.Errorf(driver.Unknown,
			"not all holds were confirmed as released; they end by their lease"))
	}
	c.stopRequests()
	<-settled
	c.renewer.wait()
	if e := c.drv.Close(); e != nil && err == nil {
		err = storeError("close", "", e)
	}
	c.mu.Lock()
	held := s.abandoned
	c.mu.Unlock()
	if len(held) > 0 {
		slices.Sort(held)
		late := &ShutdownError{Held: held,
			Cause: fmt.Errorf("functions have not returned in %v: %w", bound, context.DeadlineExceeded)}
		err = errors.Join(late, err)
	}
	return err
}

// abandonHolds ends the holds of t and, if a function still runs under one of
// them, keeps t at the store until its lease ends.
func (t *ticket) abandonHolds() {
	q := t.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	if t.state != driver.Held {
		return
	}
	over := q.closedError()
	var ended []endedHold
	running := 0
	for h := t.holds.first; h != nil; {
		next := h.next
		if !h.taken {
			h.wait.wake()
		} else {
			t.holds.remove(h)
			if h.root.runsFunction() {
				running++
				q.c.shutdown.noteAbandoned(q.name())
			}
			last, reported := h.root.end(over)
			if last {
				q.c.shutdown.holdEnded(h.root)
			}
			if last && !reported {
				ended = append(ended, endedHold{h.root, q.c.clock.now(), over})
			}
		}
		h = next
	}
	switch {
	case running > 0:
		q.endTicket(t, kept)
	case t.holds.first == nil:
		q.endTicket(t, left)
	}
	q.c.report.ended(ended...)
}

// noteAbandoned notes the name of a hold that ended under a function.
func (s *shutdown) noteAbandoned(name string) {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	s.abandoned = append(s.abandoned, name)
}

// heldTickets returns the tickets that hold.
func (r *renewer) heldTickets() map[*ticket]struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	held := make(map[*ticket]struct{}, len(r.claimEnds))
	for _, t := range r.claimEnds {
		held[t] = struct{}{}
	}
	return held
}

// stop stops the timer of claims and keeps the goroutine from being started.
func (r *renewer) stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.claimTimer != nil {
		r.claimTimer.Stop()
	}
	if !r.started {
		r.started = true
		close(r.stopped)
	}
}

// wait returns when the renewer's goroutine has ended.
func (r *renewer) wait() { <-r.stopped }
