package zklock

import (
	"context"
	"errors"
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
	if d.mustStayGone(uuid) {
		return driver.Status{State: driver.Gone}, nil
	}
	s, err := d.session(ctx, t.TTL)
	if err != nil {
		return driver.Status{}, err
	}
	r := d.enter(s, t, uuid, began)
	if r == nil {
		return driver.Status{State: driver.Gone}, nil
	}
	var p driver.Status
	if e := d.do(ctx, func() { p, err = join{r, t, ownerTag(t.Owner), began, wait}.run() }, r.s); e != nil {
		return driver.Status{}, e
	}
	return p, err
}

// join is one Join of a ticket.
type join struct {
	r     *entry
	t     *driver.Ticket
	tag   string // the owner's, in names of nodes
	began time.Time
	wait  bool
}

func (j join) run() (driver.Status, error) {
	j.r.busy.Lock()
	defer j.r.busy.Unlock()
	j.r.s.mu.Lock()
	known, left := j.r.State, j.r.MustLeave
	j.r.s.mu.Unlock()
	if left || known == driver.Gone {
		return j.r.overdueLocked()
	}
	var err error
	if known == 0 {
		err = j.enterLocked()
	} else {
		err = j.rejoinLocked()
	}
	if err != nil {
		if driver.ClassOf(err) == driver.Refused && !j.r.createUnknown {
			j.r.forget()
		}
		return driver.Status{}, err
	}
	j.r.s.mu.Lock()
	state := j.r.State
	j.r.s.mu.Unlock()
	if !j.wait && state != driver.Held {
		return j.r.tooBusyLocked()
	}
	return j.r.answer(j.began)
}

// overdueLocked answers for a ticket whose time is over. It deletes the ticket's node
// first, because Gone is the store's word.
func (r *entry) overdueLocked() (driver.Status, error) {
	if _, err := r.departLocked(); err != nil {
		return driver.Status{}, err
	}
	return driver.Status{State: driver.Gone}, nil
}

// tooBusyLocked removes a ticket that does not wait, and answers Gone with the
// holder.
func (r *entry) tooBusyLocked() (driver.Status, error) {
	r.s.mu.Lock()
	p := driver.Status{State: driver.Gone, Holder: r.holder}
	r.s.mu.Unlock()
	if _, err := r.departLocked(); err != nil {
		return driver.Status{}, err
	}
	return p, nil
}

// rejoinLocked handles a Join of a ticket that has a place.
func (j join) rejoinLocked() error {
	if !j.r.extend(j.began) {
		_, err := j.r.departLocked()
		return err
	}
	if err := j.r.s.d.replace(j.t.Replaces); err != nil {
		return err
	}
	if err := j.r.verifyLocked(); err != nil {
		return err
	}
	if err := j.r.s.sync(); err != nil {
		return err
	}
	j.r.s.mu.Lock()
	waiting := j.r.State == driver.Waiting
	j.r.s.mu.Unlock()
	if waiting {
		return j.r.resolveLocked()
	}
	return nil
}

// enterLocked takes a place.
func (j join) enterLocked() error {
	if j.r.createUnknown {
		found, err := j.r.find()
		if err != nil {
			return err
		}
		if found {
			if err := j.r.s.d.replace(j.t.Replaces); err != nil {
				return err
			}
			return j.r.resolveLocked()
		}
	}
	if !j.wait || j.t.Owner != "" || j.t.MinToken > 0 {
		if err := j.r.s.d.replace(j.t.Replaces); err != nil {
			return err
		}
		v, err := j.r.list()
		if err == nil {
			err = v.check(j.r.queue)
		}
		if err != nil {
			return err
		}
		if have := v.limit(); have != 0 && have != j.t.Limit {
			return &driver.LimitError{Name: j.t.Name, Have: have, Want: j.t.Limit}
		}
		if j.t.Owner != "" {
			shared, err := j.share(&v)
			if shared || err != nil {
				return err
			}
		}
		if !j.wait && !v.fits(j.t.Units, j.t.Limit) {
			holder, err := queueNode{j.r.s, j.r.queue}.holder(v.nodes[0].name)
			if err != nil {
				return err
			}
			j.r.s.mu.Lock()
			j.r.State, j.r.holder = driver.Waiting, holder
			j.r.s.mu.Unlock()
			return nil
		}
		if err := j.create(&v); err != nil {
			return err
		}
	} else if err := j.create(nil); err != nil {
		return err
	}
	if err := j.r.resolveLocked(); err != nil {
		return err
	}
	if j.t.Owner != "" {
		return j.mergeLocked()
	}
	return nil
}

// create makes the ticket's node, and in the same transaction deletes the node
// that it replaces. The transaction also writes the session's own node: this
// write tells the transaction's zxid, and makes the transaction fail in a later
// session than the intended one. v is a listing of the queue; it may be
// nil if the ticket has no minimum token.
func (j join) create(v *view) error {
	old := j.r.s.d.replaced(j.t.Replaces)
	for range 10 {
		mark, err := j.r.s.ownNode()
		if err != nil {
			return err
		}
		ops := []any{&zk.SetDataRequest{Path: mark.path, Version: -1}}
		plus := uint64(0)
		if v != nil && j.t.MinToken > 0 {
			if plus = v.plusFor(j.t.MinToken, mark.zxid); plus > 0 {
				ops = append(ops, &zk.CreateRequest{Path: j.r.queue + "/" + baseName(plus), Acl: j.r.s.d.acl, Flags: zk.FlagSequence})
			}
		}
		at := len(ops)
		ops = append(ops, &zk.CreateRequest{
			Path: j.r.queue + "/" + nodeName(j.r.uuid, j.tag, j.t.Units, j.t.Limit),
			Data: dataOf(j.t, 0), Acl: j.r.s.d.acl, Flags: zk.FlagEphemeralSequential,
		})
		if old != nil {
			ops = append(ops, &zk.DeleteRequest{Path: old.where(), Version: -1})
		}
		j.r.createUnknown = true
		res, err := j.r.s.conn.Multi(ops...)
		if err == nil {
			if len(res) != len(ops) || res[0].Stat == nil || res[at].String == "" {
				return driver.Errorf(driver.Unknown, "create in %s: the answer has %d of %d parts", j.r.queue, len(res), len(ops))
			}
			j.r.createUnknown = false
			if old != nil {
				old.replacedBy()
			}
			j.r.s.marked(res[0].Stat.Mzxid)
			j.r.setNodeLocked(nameOf(res[at].String), uint64(res[0].Stat.Mzxid), false)
			return nil
		}
		failed := failing(res)
		if failed < 0 {
			return classed("create in "+j.r.queue, err)
		}
		j.r.createUnknown = false
		why := res[failed].Error
		switch {
		case failed == 0 && errors.Is(why, zk.ErrNoNode):
			j.r.s.lostMark(mark.path)
		case failed > at && errors.Is(why, zk.ErrNoNode):
			old.replacedBy()
			old = nil
		case errors.Is(why, zk.ErrNoNode):
			if err := (tree{j.r.s}).makeParents(j.r.queue); err != nil {
				return err
			}
		default:
			return classed("create in "+j.r.queue, why)
		}
	}
	return driver.Errorf(driver.NotDone, "create in %s: the path keeps vanishing", j.r.queue)
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
func (r *entry) find() (bool, error) {
	if err := r.s.sync(); err != nil {
		return false, err
	}
	v, err := r.list()
	if err != nil {
		return false, err
	}
	found := false
	for _, n := range v.ofUUID(r.uuid) {
		path := r.queue + "/" + n.name
		data, stat, err := r.s.conn.Get(path)
		if errors.Is(err, zk.ErrNoNode) {
			continue
		}
		if err != nil {
			return false, classed("find "+path, err)
		}
		if !found && stat.EphemeralOwner == r.s.conn.SessionID() {
			found = true
			token := readData(n.name, data).Token
			based := token != 0
			if !based {
				token = uint64(stat.Czxid)
			}
			r.setNodeLocked(n.name, token, based)
			continue
		}
		if err := r.s.conn.Delete(path, -1); err != nil && !errors.Is(err, zk.ErrNoNode) {
			return false, classed("delete "+path, err)
		}
	}
	r.createUnknown = false
	return found, nil
}
