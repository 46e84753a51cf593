package zklock

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/storelayout"
)

// sessionsNode and identityNode are nodes beside the queues. No encoded name
// looks like them: in an encoded name two digits follow a '%'.
const (
	sessionsNode = "%sessions"
	identityNode = "%identity"
	layoutNode   = "%layout" // a number; a version that cannot share the root with this one writes it
)

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
			if err := (tree{s}).makeParents(folder); err != nil {
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

// tree is the part of the server that the driver uses, as a session may read and
// change it: the nodes that belong to no ticket.
type tree struct{ s *session }

// makeParents makes the path and the missing nodes above it, below the chroot.
// It makes containers: the server removes them once they have been empty for a
// while. Servers too old to know containers get persistent nodes.
func (t tree) makeParents(path string) error {
	rest := strings.TrimPrefix(path, t.s.d.chroot)
	at := t.s.d.chroot
	for _, field := range strings.Split(strings.TrimPrefix(rest, "/"), "/") {
		at += "/" + field
		_, err := t.s.conn.CreateContainer(at, nil, zk.FlagContainer, t.s.d.acl)
		if err != nil && strings.Contains(err.Error(), "unknown error: -6") { // -6: unimplemented
			_, err = t.s.conn.Create(at, nil, zk.FlagPersistent, t.s.d.acl)
		}
		switch {
		case err == nil, errors.Is(err, zk.ErrNodeExists):
		case errors.Is(err, zk.ErrNoAuth):
			// This user may have no right to create above the driver's own part
			// of the chroot.
			if there, _, e := t.s.conn.Exists(at); e != nil || !there {
				return classed("create "+at, err)
			}
		case errors.Is(err, zk.ErrNoNode):
			return t.noChroot()
		case errors.Is(err, zk.ErrNoChildrenForEphemerals):
			return foreign(at[:strings.LastIndexByte(at, '/')], "is an ephemeral node and can have no lines below it")
		default:
			return classed("create "+at, err)
		}
	}
	return nil
}

// noChroot returns the error of a missing path that has to exist.
func (t tree) noChroot() error {
	if t.s.d.chroot == "" {
		return driver.Errorf(driver.NotDone, "create in %s: the path keeps vanishing", t.s.d.base)
	}
	return driver.Errorf(driver.Refused, "the chroot %s does not exist; create it, or correct the address", t.s.d.chroot)
}

func (t tree) identity() (string, error) {
	path := t.s.d.base + "/" + identityNode
	for range 5 {
		data, _, err := t.s.conn.Get(path)
		if err == nil {
			return "zk:" + string(data), nil
		}
		if !errors.Is(err, zk.ErrNoNode) {
			return "", classed("read "+path, err)
		}
		_, err = t.s.conn.Create(path, []byte(strings.ToLower(rand.Text())), zk.FlagPersistent, t.s.d.acl)
		if errors.Is(err, zk.ErrNoNode) {
			err = t.makeParents(t.s.d.base)
		}
		if err != nil && !errors.Is(err, zk.ErrNodeExists) {
			return "", classed("create "+path, err)
		}
	}
	return "", driver.Errorf(driver.NotDone, "create %s: the path keeps vanishing", path)
}

// readServer checks that the chroot exists, that this user may read it, and that no
// foreign node is in the queues' place.
func (t tree) readServer(ctx context.Context) error {
	var err error
	if e := t.s.d.do(ctx, func() { err = t.examine() }); e != nil {
		return e
	}
	return err
}

func (t tree) examine() error {
	d := t.s.d
	if d.chroot != "" {
		switch there, stat, err := t.s.conn.Exists(d.chroot); {
		case err != nil:
			return classed("look at the chroot "+d.chroot, err)
		case !there:
			return t.noChroot()
		case stat.EphemeralOwner != 0:
			return foreign(d.chroot, "is an ephemeral node and can have no lines below it")
		}
	}
	nodes, stat, err := t.s.conn.Children(d.syncPath())
	switch {
	case errors.Is(err, zk.ErrNoNode):
		return nil
	case errors.Is(err, zk.ErrNoAuth):
		return driver.Errorf(driver.Refused, "no right to read %s: wrong user or password, or an ACL: %w", d.syncPath(), err)
	case err != nil:
		return classed("list "+d.syncPath(), err)
	case stat.EphemeralOwner != 0:
		return foreign(d.base, "is an ephemeral node and can have no lines below it")
	case !slices.Contains(nodes, layoutNode):
		return nil
	}
	path := d.base + "/" + layoutNode
	text, _, err := t.s.conn.Get(path)
	if err != nil {
		return classed("read "+path, err)
	}
	return storelayout.Check("node "+path, string(text))
}
