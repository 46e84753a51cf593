package zklock

import (
	"crypto/rand"
	"errors"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/holdfast-go/holdfast/driver"
)

// The nodes of a user who has lost the right to delete stay for as long as
// their session lives. So a session with such a node takes no more tickets, and
// is closed once all of its tickets have to go: the server deletes the nodes of
// a closed session without checking rights.

// retireIfRefused retires the session if err is a refusal to delete one of its nodes. It
// returns err.
func (s *session) retireIfRefused(err error) error {
	if driver.ClassOf(err) != driver.Refused || s.users {
		return err
	}
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	for ask, other := range s.d.sessions {
		if other == s {
			delete(s.d.sessions, ask)
			s.d.retired[s] = true
		}
	}
	return err
}

// retire closes the session if it takes no more tickets and all its tickets have
// to leave. A Leave that is under way gets its answer before that.
func (s *session) retire() {
	s.mu.Lock()
	for _, r := range s.byUUID {
		if !r.mustLeave || r.leaving {
			s.mu.Unlock()
			return
		}
	}
	s.mu.Unlock()
	d := s.d
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed || !d.retired[s] {
		return
	}
	delete(d.retired, s)
	d.calls.Go(func() {
		s.close(false)
		s.mu.Lock()
		var rs []*entry
		for _, r := range s.byUUID {
			rs = append(rs, r)
		}
		s.mu.Unlock()
		for _, r := range rs {
			s.forget(r)
		}
	})
}

// checkRights performs a lock's operations below a path of its own, and reports
// the missing right. It returns nil if the queues' path, which has the rights,
// does not exist yet.
func (s *session) checkRights() *driver.Finding {
	if there, _, err := s.conn.Exists(s.d.syncPath()); err != nil || !there {
		return nil
	}
	probe := s.d.base + "/%check-" + strings.ToLower(rand.Text())
	node := probe + "/node"
	for _, step := range []struct {
		right string
		do    func() error
	}{
		{"create", func() error { _, err := s.conn.CreateContainer(probe, nil, zk.FlagContainer, s.d.acl); return err }},
		{"create", func() error { _, err := s.conn.Create(node, nil, zk.FlagEphemeral, s.d.acl); return err }},
		{"read", func() error { _, _, err := s.conn.Children(probe); return err }},
		{"write", func() error { _, err := s.conn.Set(node, nil, -1); return err }},
		{"delete", func() error { return s.conn.Delete(node, -1) }},
		{"delete", func() error { return s.conn.Delete(probe, -1) }},
	} {
		if err := step.do(); errors.Is(err, zk.ErrNoAuth) {
			// The server removes the node with the session, and the container
			// once it is empty.
			return &driver.Finding{Topic: "rights", Level: driver.Problem, Detail: "the user has no right to " + step.right + " below " + s.d.syncPath(),
				Advice: "give the user create, read, write and delete there"}
		} else if err != nil {
			return &driver.Finding{Topic: "rights", Level: driver.Warning, Detail: "they could not be examined: " + classed(step.right, err).Error(),
				Advice: "examine them again"}
		}
	}
	return &driver.Finding{Topic: "rights", Detail: "the user may create, read, write and delete below " + s.d.syncPath()}
}
