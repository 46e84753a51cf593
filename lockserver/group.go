package lockserver

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/holdfast-go/holdfast"
)

// groupQuestion is one question for the store's identity, whose answer all requests of
// the moment wait for.
type groupQuestion struct {
	answered chan struct{}
	err      error // readable once answered is closed
}

// knowGroup returns once the group is known: 8 hexadecimal digits that servers share
// exactly if their locks exclude each other and ids mean the same. It asks the store
// until that has answered once.
func (s *Server) knowGroup(ctx context.Context) error {
	s.groupMu.Lock()
	if s.group != "" {
		s.groupMu.Unlock()
		return nil
	}
	q := s.asked
	if q == nil {
		q = &groupQuestion{answered: make(chan struct{})}
		s.asked = q
		go s.askGroup(q)
	}
	s.groupMu.Unlock()
	select {
	case <-q.answered:
		return q.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// askGroup asks the store for its identity.
func (s *Server) askGroup(q *groupQuestion) {
	ctx, cancel := requestContext(context.Background(), ioTimeout)
	defer cancel()
	id, err := s.client.Identity(ctx)
	if errors.Is(err, holdfast.ErrUnsupported) {
		id, err = s.name, nil // no other server can be known to share it
	}
	s.groupMu.Lock()
	defer s.groupMu.Unlock()
	if err == nil {
		sum := sha256.Sum256(fmt.Appendf(nil, "%q %q", id, s.options.Realm))
		s.group = hex.EncodeToString(sum[:4])
	}
	s.asked, q.err = nil, err
	close(q.answered)
}

// knownGroup returns the group, or nothing while the store has not told.
func (s *Server) knownGroup() string {
	s.groupMu.Lock()
	defer s.groupMu.Unlock()
	return s.group
}
