package lockserver

import (
	"context"
	"fmt"
)

// Drain ends the server's part: it takes no new places, polls and streams end at once,
// and /readyz answers 503. Renewals, releases and resumes go on, with draining in each
// answer, on which clients go on at the next server. Drain blocks until no hold is left
// here, and returns nil, or until ctx ends: then it detaches the holds that another
// server can go on with, so that a Close of the client does not release them, and
// returns an error with the number of those that it cannot detach, if any. It may be
// called again.
func (s *Server) Drain(ctx context.Context) error {
	s.mu.Lock()
	if !s.draining {
		s.draining = true
		s.drained = make(chan struct{})
		s.subscribers.end(fields{{"event", "draining"}}) // before streams learn that they end
		s.scans.end()
		close(s.ending)
	}
	s.checkDrainedLocked()
	done := s.drained
	s.mu.Unlock()
	select {
	case <-done:
		s.running.Wait()
		s.scans.running.Wait()
		return nil
	case <-ctx.Done():
	}
	return s.detachAll(ctx)
}

// checkDrainedLocked notes that a server that drains has nothing left. Server.mu guards
// it.
func (s *Server) checkDrainedLocked() {
	if !s.draining || s.live > 0 {
		return
	}
	select {
	case <-s.drained:
	default:
		close(s.drained)
	}
}

// detachAll keeps the places of resumable holds at the store, whatever becomes of the
// client.
func (s *Server) detachAll(ctx context.Context) error {
	var last []*hold
	s.mu.Lock()
	left := 0
	for _, h := range s.holds {
		switch {
		case h.state == held && h.resumable():
			last = append(last, h)
		case h.state != over:
			left++
		}
	}
	s.mu.Unlock()
	for _, h := range last {
		s.mu.Lock()
		lock := h.lock
		h.failed = unknownHold() // for a renewal under way: another server can go on with it
		s.removeLocked(h)
		s.mu.Unlock()
		if lock != nil {
			_ = lock.Detach() // an error says that it has ended
		}
	}
	if left > 0 {
		return fmt.Errorf("lockserver: drain: %d holds and waits are left: %w", left, context.Cause(ctx))
	}
	return nil
}
