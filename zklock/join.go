package zklock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/holdfast-go/holdfast/driver"
)

// maxLine is how many tickets one line may have. The listing of a longer one
// would be more than clients in other languages take (a megabyte).
const maxLine = 10_000

// Join implements [driver.Driver].
func (d *Driver) Join(ctx context.Context, t *driver.Ticket, wait bool) (driver.Place, error) {
	if err := d.before(ctx); err != nil {
		return driver.Place{}, err
	}
	entry := time.Now()
	uuid := nodeUUID(t.ID)
	if d.buried(uuid) {
		return driver.Place{State: driver.Gone}, nil
	}
	s, err := d.session(ctx, t.TTL)
	if err != nil {
		return driver.Place{}, err
	}
	s = d.home(uuid, s)
	r := s.record(t, uuid, entry)
	var p driver.Place
	if e := d.do(ctx, func() { p, err = s.join(r, t, entry, wait) }); e != nil {
		return driver.Place{}, e
	}
	return p, err
}

func (s *session) join(r *record, t *driver.Ticket, entry time.Time, wait bool) (driver.Place, error) {
	r.busy.Lock()
	defer r.busy.Unlock()
	s.mu.Lock()
	known, left := r.state, r.left
	s.mu.Unlock()
	if left || known == driver.Gone {
		return driver.Place{State: driver.Gone}, nil
	}
	var err error
	if known == 0 {
		err = s.enter(r, t, wait)
	} else {
		err = s.again(r, t, entry)
	}
	if err != nil {
		if driver.ClassOf(err) == driver.Refused && !r.asked {
			s.forget(r)
		}
		return driver.Place{}, err
	}
	s.mu.Lock()
	state := r.state
	s.mu.Unlock()
	if !wait && state != driver.Held {
		return s.tooBusy(r)
	}
	return s.answer(r, entry)
}

// tooBusy takes a ticket that does not wait away again.
func (s *session) tooBusy(r *record) (driver.Place, error) {
	s.mu.Lock()
	p := driver.Place{State: driver.Gone, Holder: r.holder}
	s.mu.Unlock()
	if _, err := s.depart(r); err != nil {
		return driver.Place{}, err
	}
	return p, nil
}

// again is a Join of a ticket that has a place.
func (s *session) again(r *record, t *driver.Ticket, entry time.Time) error {
	if !s.extend(r, entry) {
		_, err := s.depart(r)
		return err
	}
	if t.Replaces != nil {
		if err := s.d.replace(t.Replaces); err != nil {
			return err
		}
	}
	if err := s.verify(r); err != nil {
		return err
	}
	if err := s.sync(); err != nil {
		return err
	}
	s.mu.Lock()
	waiting := r.state == driver.Waiting
	s.mu.Unlock()
	if waiting {
		return s.settle(r)
	}
	return nil
}

// enter takes a place. The caller has busy.
func (s *session) enter(r *record, t *driver.Ticket, wait bool) error {
	if r.asked {
		found, err := s.find(r)
		if err != nil {
			return err
		}
		if found {
			if t.Replaces != nil {
				if err := s.d.replace(t.Replaces); err != nil {
					return err
				}
			}
			return s.settle(r)
		}
	}
	tag := ownerTag(t.Owner)
	if !wait || t.Owner != "" || t.Floor > 0 {
		if t.Replaces != nil {
			if err := s.d.replace(t.Replaces); err != nil {
				return err
			}
		}
		v, err := s.list(r.line)
		if err != nil {
			return err
		}
		if have := v.limit(); have != 0 && have != t.Limit {
			return &driver.LimitError{Name: t.Name, Have: have, Want: t.Limit}
		}
		if t.Owner != "" {
			shared, err := s.share(r, t, &v, tag, wait)
			if shared || err != nil {
				return err
			}
		}
		if !wait && !v.fits(t.Units, t.Limit) {
			holder, err := s.holder(r.line, v.nodes[0].name)
			if err != nil {
				return err
			}
			s.mu.Lock()
			r.state, r.holder = driver.Waiting, holder
			s.mu.Unlock()
			return nil
		}
		if err := s.create(r, t, tag, &v); err != nil {
			return err
		}
	} else if err := s.create(r, t, tag, nil); err != nil {
		return err
	}
	if err := s.settle(r); err != nil {
		return err
	}
	if t.Owner != "" {
		return s.merge(r, t, tag)
	}
	return nil
}

// create makes the ticket's node, and in the same transaction deletes the node
// it replaces. The write of the session's own node says which transaction that
// was, and refuses it in a later session than was meant. v is a listing of the
// line, or nil when the ticket has no floor.
func (s *session) create(r *record, t *driver.Ticket, tag string, v *view) error {
	old := s.d.replaced(t.Replaces)
	for range 10 {
		mark, err := s.ownNode()
		if err != nil {
			return err
		}
		ops := []any{&zk.SetDataRequest{Path: mark.path, Version: -1}}
		plus := uint64(0)
		if v != nil && t.Floor > 0 {
			if plus = v.plusFor(t.Floor, mark.zxid); plus > 0 {
				ops = append(ops, &zk.CreateRequest{Path: r.line + "/" + baseName(plus), Acl: s.d.acl, Flags: zk.FlagSequence})
			}
		}
		at := len(ops)
		ops = append(ops, &zk.CreateRequest{
			Path: r.line + "/" + nodeName(r.uuid, tag, t.Units, t.Limit),
			Data: dataOf(t, 0), Acl: s.d.acl, Flags: zk.FlagEphemeralSequential,
		})
		if old != nil {
			ops = append(ops, &zk.DeleteRequest{Path: old.where(), Version: -1})
		}
		r.asked = true
		res, err := s.conn.Multi(ops...)
		if err == nil {
			if len(res) != len(ops) || res[0].Stat == nil || res[at].String == "" {
				return driver.Errorf(driver.Unknown, "create in %s: the answer has %d of %d parts", r.line, len(res), len(ops))
			}
			r.asked = false
			if old != nil {
				old.s.replacedBy(old)
			}
			s.marked(res[0].Stat.Mzxid)
			s.sits(r, nameOf(res[at].String), uint64(res[0].Stat.Mzxid), false)
			return nil
		}
		failed := failing(res)
		if failed < 0 {
			return classed("create in "+r.line, err)
		}
		r.asked = false
		why := res[failed].Error
		switch {
		case failed == 0 && errors.Is(why, zk.ErrNoNode):
			s.lostMark(mark.path)
		case failed > at && errors.Is(why, zk.ErrNoNode):
			old.s.replacedBy(old)
			old = nil
		case errors.Is(why, zk.ErrNoNode):
			if err := s.makeParents(r.line); err != nil {
				return err
			}
		default:
			return classed("create in "+r.line, why)
		}
	}
	return driver.Errorf(driver.NotDone, "create in %s: the path keeps vanishing", r.line)
}

// failing returns the part of a transaction that was refused, -1 when nothing
// says so.
func failing(res []zk.MultiResponse) int {
	for i, p := range res {
		if p.Error != nil {
			return i
		}
	}
	return -1
}

// find looks for what an unanswered create may have made. Only a node of the
// present session counts; others are about to vanish and are deleted.
func (s *session) find(r *record) (bool, error) {
	if err := s.sync(); err != nil {
		return false, err
	}
	v, err := s.list(r.line)
	if err != nil {
		return false, err
	}
	found := false
	for _, n := range v.ofUUID(r.uuid) {
		path := r.line + "/" + n.name
		data, stat, err := s.conn.Get(path)
		if errors.Is(err, zk.ErrNoNode) {
			continue
		}
		if err != nil {
			return false, classed("find "+path, err)
		}
		if !found && stat.EphemeralOwner == s.conn.SessionID() {
			found = true
			token := readData(n.name, data).Token
			based := token != 0
			if !based {
				token = uint64(stat.Czxid)
			}
			s.sits(r, n.name, token, based)
			continue
		}
		if err := s.conn.Delete(path, -1); err != nil && !errors.Is(err, zk.ErrNoNode) {
			return false, classed("delete "+path, err)
		}
	}
	r.asked = false
	return found, nil
}

// list reads the line once. A path that is somebody's data is refused.
func (s *session) list(line string) (view, error) {
	children, stat, err := s.conn.Children(line)
	return s.listed(line, children, stat, err)
}

func (s *session) listed(line string, children []string, stat *zk.Stat, err error) (view, error) {
	if errors.Is(err, zk.ErrNoNode) {
		return view{}, nil
	}
	if err != nil {
		return view{}, classed("list "+line, err)
	}
	if stat.DataLength > 0 {
		return view{}, foreign(line, fmt.Sprintf("holds %d bytes of somebody's data and is not a line", stat.DataLength))
	}
	if stat.EphemeralOwner != 0 {
		return view{}, foreign(line, "is an ephemeral node and not a line")
	}
	v := look(children)
	s.d.strays(s, line, &v)
	return v, nil
}

// holder reads the metadata of a node.
func (s *session) holder(line, name string) (string, error) {
	data, _, err := s.conn.Get(line + "/" + name)
	if err != nil && !errors.Is(err, zk.ErrNoNode) {
		return "", classed("read "+line+"/"+name, err)
	}
	if err != nil {
		return "", nil
	}
	return readData(name, data).Meta, nil
}
