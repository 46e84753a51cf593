package zklock

import (
	"crypto/rand"
	"errors"
	"maps"
	"slices"
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
	for r := range s.entries {
		if !r.MustLeave || r.leaving {
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
		rs := slices.Collect(maps.Keys(s.entries))
		s.mu.Unlock()
		for _, r := range rs {
			r.forget()
		}
	})
}

// checkMarks asks for the rights that marks need, at their node and at one of them, and
// reports the missing right. It returns nil if there is no such node yet: whoever may
// lock may make it, as checkRights says.
func (t tree) checkMarks() *driver.Finding {
	path := t.s.d.base + "/" + marksNode
	marks, _, err := t.s.conn.Children(path)
	if errors.Is(err, zk.ErrNoNode) {
		return nil
	}
	right := "read"
	if err == nil {
		right, err = "create", t.mayDo(&zk.CreateRequest{Path: path + "/%check-" + strings.ToLower(rand.Text()), Acl: t.s.d.acl})
	}
	if err == nil && len(marks) > 0 {
		right = "read"
		if _, _, err = t.s.conn.Get(path + "/" + marks[0]); err == nil {
			right, err = "write", t.mayDo(&zk.SetDataRequest{Path: path + "/" + marks[0], Version: -1})
		}
	}
	switch {
	case errors.Is(err, zk.ErrNoAuth):
		return &driver.Finding{Topic: "once", Level: driver.Problem, Detail: "Once cannot record slots that are done: the user has no right to " + right + " below " + path,
			Advice: "give the user create, read and write there, at the marks that exist too"}
	case err != nil:
		return &driver.Finding{Topic: "once", Level: driver.Warning, Detail: "the rights to marks could not be examined: " + classed(right, err).Error(),
			Advice: "examine them again"}
	}
	return &driver.Finding{Topic: "once", Detail: "slots that are done can be read and recorded"}
}

// mayDo returns an error if the user has no right to a request. It sends the request in
// a transaction that always fails; the server checks the rights before.
func (t tree) mayDo(request any) error {
	_, err := t.s.conn.Multi(request, &zk.CheckVersionRequest{Path: t.s.d.syncPath(), Version: 1<<31 - 1})
	if errors.Is(err, zk.ErrBadVersion) || errors.Is(err, zk.ErrNoNode) {
		return nil // as planned, or something is gone
	}
	return err
}

// checkRights performs a lock's operations below a path of its own, and reports
// the missing right. It returns nil if the queues' path, which has the rights,
// does not exist yet.
func (t tree) checkRights() *driver.Finding {
	if there, _, err := t.s.conn.Exists(t.s.d.syncPath()); err != nil || !there {
		return nil
	}
	probe := t.s.d.base + "/%check-" + strings.ToLower(rand.Text())
	node := probe + "/node"
	for _, step := range []struct {
		right string
		do    func() error
	}{
		{"create", func() error { _, err := t.s.conn.CreateContainer(probe, nil, zk.FlagContainer, t.s.d.acl); return err }},
		{"create", func() error { _, err := t.s.conn.Create(node, nil, zk.FlagEphemeral, t.s.d.acl); return err }},
		{"read", func() error { _, _, err := t.s.conn.Children(probe); return err }},
		{"write", func() error { _, err := t.s.conn.Set(node, nil, -1); return err }},
		{"delete", func() error { return t.s.conn.Delete(node, -1) }},
		{"delete", func() error { return t.s.conn.Delete(probe, -1) }},
	} {
		if err := step.do(); errors.Is(err, zk.ErrNoAuth) {
			// The server removes the node with the session, and the container
			// once it is empty.
			return &driver.Finding{Topic: "rights", Level: driver.Problem, Detail: "the user has no right to " + step.right + " below " + t.s.d.syncPath(),
				Advice: "give the user create, read, write and delete there"}
		} else if err != nil {
			return &driver.Finding{Topic: "rights", Level: driver.Warning, Detail: "they could not be examined: " + classed(step.right, err).Error(),
				Advice: "examine them again"}
		}
	}
	return &driver.Finding{Topic: "rights", Detail: "the user may create, read, write and delete below " + t.s.d.syncPath()}
}
