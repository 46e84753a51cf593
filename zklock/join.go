package zklock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/holdfast-go/holdfast/driver"
)

// maxTickets is the most tickets that one queue may have. The listing of a longer
// queue would exceed the limit of clients in other languages, a megabyte.
const maxTickets = 10_000

// Join implements [driver.Driver].
func (d *Driver) Join(ctx context.Context, t *driver.Ticket, wait bool) (driver.Status, error) {
	if err := d.checkOpen(ctx); err != nil {
		return driver.Status{}, err
	}
	began := time.Now()
	uuid := nodeUUID(t.ID)
	if d.hasTombstone(uuid) && d.find(uuid) == nil {
		return driver.Status{State: driver.Gone}, nil
	}
	s, err := d.session(ctx, t.TTL)
	if err != nil {
		return driver.Status{}, err
	}
	s = d.home(uuid, s)
	r := s.newEntry(t, uuid, began)
	var p driver.Status
	if e := d.do(ctx, func() { p, err = s.join(r, t, began, wait) }, s); e != nil {
		return driver.Status{}, e
	}
	return p, err
}

func (s *session) join(r *entry, t *driver.Ticket, began time.Time, wait bool) (driver.Status, error) {
	r.busy.Lock()
	defer r.busy.Unlock()
	s.mu.Lock()
	known, left := r.state, r.mustLeave
	s.mu.Unlock()
	if left || known == driver.Gone {
		return s.overdueLocked(r)
	}
	var err error
	if known == 0 {
		err = s.enterLocked(r, t, wait)
	} else {
		err = s.rejoinLocked(r, t, began)
	}
	if err != nil {
		if driver.ClassOf(err) == driver.Refused && !r.createUnknown {
			s.forget(r)
		}
		return driver.Status{}, err
	}
	s.mu.Lock()
	state := r.state
	s.mu.Unlock()
	if !wait && state != driver.Held {
		return s.tooBusyLocked(r)
	}
	return s.answer(r, began)
}

// overdueLocked answers for a ticket whose time is over. It deletes the ticket's node
// first, because Gone is the store's word.
func (s *session) overdueLocked(r *entry) (driver.Status, error) {
	if _, err := s.departLocked(r); err != nil {
		return driver.Status{}, err
	}
	return driver.Status{State: driver.Gone}, nil
}

// tooBusyLocked removes a ticket that does not wait, and answers Gone with the
// holder.
func (s *session) tooBusyLocked(r *entry) (driver.Status, error) {
	s.mu.Lock()
	p := driver.Status{State: driver.Gone, Holder: r.holder}
	s.mu.Unlock()
	if _, err := s.departLocked(r); err != nil {
		return driver.Status{}, err
	}
	return p, nil
}

// rejoinLocked handles a Join of a ticket that has a place.
func (s *session) rejoinLocked(r *entry, t *driver.Ticket, began time.Time) error {
	if !s.extend(r, began) {
		_, err := s.departLocked(r)
		return err
	}
	if t.Replaces != nil {
		if err := s.d.replace(t.Replaces); err != nil {
			return err
		}
	}
	if err := s.verifyLocked(r); err != nil {
		return err
	}
	if err := s.sync(); err != nil {
		return err
	}
	s.mu.Lock()
	waiting := r.state == driver.Waiting
	s.mu.Unlock()
	if waiting {
		return s.resolveLocked(r)
	}
	return nil
}

// enterLocked takes a place.
func (s *session) enterLocked(r *entry, t *driver.Ticket, wait bool) error {
	if r.createUnknown {
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
			return s.resolveLocked(r)
		}
	}
	tag := ownerTag(t.Owner)
	if !wait || t.Owner != "" || t.MinToken > 0 {
		if t.Replaces != nil {
			if err := s.d.replace(t.Replaces); err != nil {
				return err
			}
		}
		v, err := s.list(r.queue)
		if err == nil {
			err = v.check(r.queue)
		}
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
			holder, err := s.holder(r.queue, v.nodes[0].name)
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
	if err := s.resolveLocked(r); err != nil {
		return err
	}
	if t.Owner != "" {
		return s.mergeLocked(r, t, tag)
	}
	return nil
}

// create makes the ticket's node, and in the same transaction deletes the node
// that it replaces. The transaction also writes the session's own node: this
// write tells the transaction's zxid, and makes the transaction fail in a later
// session than the intended one. v is a listing of the queue; it may be
// nil if the ticket has no minimum token.
func (s *session) create(r *entry, t *driver.Ticket, tag string, v *view) error {
	old := s.d.replaced(t.Replaces)
	for range 10 {
		mark, err := s.ownNode()
		if err != nil {
			return err
		}
		ops := []any{&zk.SetDataRequest{Path: mark.path, Version: -1}}
		plus := uint64(0)
		if v != nil && t.MinToken > 0 {
			if plus = v.plusFor(t.MinToken, mark.zxid); plus > 0 {
				ops = append(ops, &zk.CreateRequest{Path: r.queue + "/" + baseName(plus), Acl: s.d.acl, Flags: zk.FlagSequence})
			}
		}
		at := len(ops)
		ops = append(ops, &zk.CreateRequest{
			Path: r.queue + "/" + nodeName(r.uuid, tag, t.Units, t.Limit),
			Data: dataOf(t, 0), Acl: s.d.acl, Flags: zk.FlagEphemeralSequential,
		})
		if old != nil {
			ops = append(ops, &zk.DeleteRequest{Path: old.where(), Version: -1})
		}
		r.createUnknown = true
		res, err := s.conn.Multi(ops...)
		if err == nil {
			if len(res) != len(ops) || res[0].Stat == nil || res[at].String == "" {
				return driver.Errorf(driver.Unknown, "create in %s: the answer has %d of %d parts", r.queue, len(res), len(ops))
			}
			r.createUnknown = false
			if old != nil {
				old.s.replacedBy(old)
			}
			s.marked(res[0].Stat.Mzxid)
			s.setNodeLocked(r, nameOf(res[at].String), uint64(res[0].Stat.Mzxid), false)
			return nil
		}
		failed := failing(res)
		if failed < 0 {
			return classed("create in "+r.queue, err)
		}
		r.createUnknown = false
		why := res[failed].Error
		switch {
		case failed == 0 && errors.Is(why, zk.ErrNoNode):
			s.lostMark(mark.path)
		case failed > at && errors.Is(why, zk.ErrNoNode):
			old.s.replacedBy(old)
			old = nil
		case errors.Is(why, zk.ErrNoNode):
			if err := s.makeParents(r.queue); err != nil {
				return err
			}
		default:
			return classed("create in "+r.queue, why)
		}
	}
	return driver.Errorf(driver.NotDone, "create in %s: the path keeps vanishing", r.queue)
}

// failing returns the index of the operation that made a transaction fail, or
// -1 if the result names none.
func failing(res []zk.MultiResponse) int {
	for i, p := range res {
		if p.Error != nil {
			return i
		}
	}
	return -1
}

// find looks for nodes that an unanswered create may have made. Only a node of
// the present session counts; nodes of earlier sessions are about to vanish,
// and find deletes them.
func (s *session) find(r *entry) (bool, error) {
	if err := s.sync(); err != nil {
		return false, err
	}
	v, err := s.list(r.queue)
	if err != nil {
		return false, err
	}
	found := false
	for _, n := range v.ofUUID(r.uuid) {
		path := r.queue + "/" + n.name
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
			s.setNodeLocked(r, n.name, token, based)
			continue
		}
		if err := s.conn.Delete(path, -1); err != nil && !errors.Is(err, zk.ErrNoNode) {
			return false, classed("delete "+path, err)
		}
	}
	r.createUnknown = false
	return found, nil
}

// list reads the queue once. It refuses a path that holds foreign data.
func (s *session) list(queue string) (view, error) {
	children, stat, err := s.conn.Children(queue)
	return s.listed(queue, children, stat, err)
}

func (s *session) listed(queue string, children []string, stat *zk.Stat, err error) (view, error) {
	if errors.Is(err, zk.ErrNoNode) {
		return view{}, nil
	}
	if err != nil {
		return view{}, classed("list "+queue, err)
	}
	if stat.DataLength > 0 {
		return view{}, foreign(queue, fmt.Sprintf("holds %d bytes of somebody's data and is not a line", stat.DataLength))
	}
	if stat.EphemeralOwner != 0 {
		return view{}, foreign(queue, "is an ephemeral node and not a line")
	}
	v := viewOf(children)
	v.pzxid = stat.Pzxid
	s.d.deleteStrays(s, queue, &v)
	return v, nil
}

// holder returns the metadata in a node.
func (s *session) holder(queue, name string) (string, error) {
	data, _, err := s.conn.Get(queue + "/" + name)
	if err != nil && !errors.Is(err, zk.ErrNoNode) {
		return "", classed("read "+queue+"/"+name, err)
	}
	if err != nil {
		return "", nil
	}
	return readData(name, data).Meta, nil
}
