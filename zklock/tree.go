package zklock

import (
	"crypto/rand"
	"errors"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/holdfast-go/holdfast/driver"
)

// sessionsNode and identityNode are nodes beside the queues. No encoded name
// looks like them: in an encoded name two digits follow a '%'.
const (
	sessionsNode = "%sessions"
	identityNode = "%identity"
)

func (d *Driver) queuePath(name string) string { return d.base + "/" + encodeName(name) }

// syncPath returns a path that the server accepts in any request.
func (d *Driver) syncPath() string {
	if d.base == "" {
		return "/"
	}
	return d.base
}

// mark is the session's own node, and a transaction before all later ones.
type mark struct {
	path string
	zxid int64
}

// ownNode returns the session's own node, and makes it if there is none. The
// node is ephemeral, so that a request meant for this session does nothing in a
// later one.
func (s *session) ownNode() (mark, error) {
	s.marking.Lock()
	defer s.marking.Unlock()
	s.mu.Lock()
	m, connected := mark{s.mark, s.zxid}, s.connected
	s.mu.Unlock()
	if m.path != "" {
		return m, nil
	}
	if !connected {
		return m, s.away()
	}
	folder := s.d.base + "/" + sessionsNode
	m.path = folder + "/" + strings.ToLower(rand.Text())
	id := s.conn.SessionID()
	for range 5 {
		_, err := s.conn.Create(m.path, nil, zk.FlagEphemeral, s.d.acl)
		if errors.Is(err, zk.ErrNoNode) {
			if err := s.makeParents(folder); err != nil {
				return mark{}, err
			}
			continue
		}
		if err != nil {
			return mark{}, classed("create "+m.path, err)
		}
		_, stat, err := s.conn.Get(m.path)
		if err != nil {
			return mark{}, classed("read "+m.path, err)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if stat.EphemeralOwner != s.id || id != s.id {
			return mark{}, driver.Errorf(driver.NotDone, "the session has expired")
		}
		s.mark, s.zxid = m.path, stat.Czxid
		return mark{s.mark, s.zxid}, nil
	}
	return mark{}, driver.Errorf(driver.NotDone, "create %s: the path keeps vanishing", m.path)
}

// lostMark notes that the session's own node is gone: it ended with the
// session, or somebody deleted it.
func (s *session) lostMark(path string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mark == path {
		s.mark = ""
	}
}

// marked notes a transaction that wrote the session's own node.
func (s *session) marked(zxid int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.zxid = max(s.zxid, zxid)
}

// makeParents makes the path and the missing nodes above it, below the chroot.
// It makes containers: the server removes them once they have been empty for a
// while. Servers too old to know containers get persistent nodes.
func (s *session) makeParents(path string) error {
	rest := strings.TrimPrefix(path, s.d.chroot)
	at := s.d.chroot
	for _, field := range strings.Split(strings.TrimPrefix(rest, "/"), "/") {
		at += "/" + field
		_, err := s.conn.CreateContainer(at, nil, zk.FlagContainer, s.d.acl)
		if err != nil && strings.Contains(err.Error(), "unknown error: -6") { // -6: unimplemented
			_, err = s.conn.Create(at, nil, zk.FlagPersistent, s.d.acl)
		}
		switch {
		case err == nil, errors.Is(err, zk.ErrNodeExists):
		case errors.Is(err, zk.ErrNoAuth):
			// This user may have no right to create above the driver's own part
			// of the chroot.
			if there, _, e := s.conn.Exists(at); e != nil || !there {
				return classed("create "+at, err)
			}
		case errors.Is(err, zk.ErrNoNode):
			return s.noChroot()
		case errors.Is(err, zk.ErrNoChildrenForEphemerals):
			return foreign(at[:strings.LastIndexByte(at, '/')], "is an ephemeral node and can have no lines below it")
		default:
			return classed("create "+at, err)
		}
	}
	return nil
}

// noChroot returns the error of a missing path that has to exist.
func (s *session) noChroot() error {
	if s.d.chroot == "" {
		return driver.Errorf(driver.NotDone, "create in %s: the path keeps vanishing", s.d.base)
	}
	return driver.Errorf(driver.Refused, "the chroot %s does not exist; create it, or correct the address", s.d.chroot)
}
