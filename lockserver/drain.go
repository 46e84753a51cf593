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
	s.subscribers.end(fields{{"event", "draining"}}) // before streams learn that they end
	s.scans.end()
	select {
	case <-s.table.end():
		s.table.running.Wait()
		s.scans.running.Wait()
		return nil
	case <-ctx.Done():
	}
	if left := s.table.abandon(); left > 0 {
		return fmt.Errorf("lockserver: drain: %d holds and waits are left: %w", left, context.Cause(ctx))
	}
	return nil
}
