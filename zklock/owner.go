package zklock

import (
	"errors"

	"github.com/go-zookeeper/zk"

	"github.com/holdfast-go/holdfast/driver"
)

// The first ticket of a named owner has a node of its own; each further ticket
// has an ephemeral node with the same number. A transaction makes the further
// node, and checks that the node whose place it shares still exists. So the
// place is never empty between two of its tickets. A waiter behind the place,
// in whatever language, finds another node of that number in its way when the
// first is gone.

// share joins the place that the ticket's owner has, if it has one. r.busy is
// held.
func (s *session) share(r *entry, t *driver.Ticket, v *view, tag string, wait bool) (shared bool, err error) {
	for {
		n, ok := v.ofOwner(tag, r.uuid)
		if !ok {
			return false, nil
		}
		data, stat, err := s.conn.Get(r.queue + "/" + n.name)
		switch {
		case errors.Is(err, zk.ErrNoNode):
		case err != nil:
			return false, classed("read "+r.queue+"/"+n.name, err)
		default:
			d := readData(n.name, data)
			if d.Owner != t.Owner {
				return false, nil // another owner with the same hash: a stranger
			}
			if t.Units > v.unitsAt(n.seq) {
				return false, driver.ErrUpgrade
			}
			if !wait && !v.position(n.name).held {
				holder, err := s.holder(r.queue, v.nodes[0].name)
				s.mu.Lock()
				r.state, r.holder = driver.Waiting, holder
				s.mu.Unlock()
				return true, err
			}
			token := d.Token
			if token == 0 {
				token = uint64(stat.Czxid) + v.base(n.seq)
			}
			joined, err := s.shareNodeLocked(r, t, n, token)
			if err != nil {
				return false, err
			}
			if joined {
				return true, s.resolveLocked(r)
			}
		}
		if *v, err = s.list(r.queue); err != nil {
			return false, err
		}
	}
}

// shareNodeLocked makes the ticket's node in the place of n, and removes the node that the
// ticket may already have. It returns false if n is gone.
func (s *session) shareNodeLocked(r *entry, t *driver.Ticket, n node, token uint64) (bool, error) {
	name := nodeName(r.uuid, n.owner, n.units, n.limit) + formatSeq(n.seq)
	for range 10 {
		mark, err := s.ownNode()
		if err != nil {
			return false, err
		}
		s.mu.Lock()
		old := r.path
		s.mu.Unlock()
		ops := []any{
			&zk.CheckVersionRequest{Path: r.queue + "/" + n.name, Version: -1},
			&zk.SetDataRequest{Path: mark.path, Version: -1},
			&zk.CreateRequest{Path: r.queue + "/" + name, Data: dataOf(t, token), Acl: s.d.acl, Flags: zk.FlagEphemeral},
		}
		if old != "" {
			ops = append(ops, &zk.DeleteRequest{Path: old, Version: -1})
			s.mu.Lock()
			delete(s.byPath, old) // the end of this node is no loss
			s.mu.Unlock()
		}
		r.createUnknown = true
		res, err := s.conn.Multi(ops...)
		if err == nil {
			r.createUnknown = false
			s.setNodeLocked(r, name, token, true)
			return true, nil
		}
		failed := failing(res)
		if failed < 0 {
			return false, classed("create in "+r.queue, err)
		}
		r.createUnknown = false
		if old != "" {
			s.mu.Lock()
			s.byPath[old] = r
			s.mu.Unlock()
		}
		switch why := res[failed].Error; {
		case failed == 0 && errors.Is(why, zk.ErrNoNode):
			return false, nil
		case failed == 1 && errors.Is(why, zk.ErrNoNode):
			s.lostMark(mark.path)
		default:
			return false, classed("create in "+r.queue, why)
		}
	}
	return false, driver.Errorf(driver.NotDone, "create in %s: the path keeps vanishing", r.queue)
}

// mergeLocked moves a ticket to its owner's place, if another ticket of the owner
// took a place at the same time and a little earlier.
func (s *session) mergeLocked(r *entry, t *driver.Ticket, tag string) error {
	for {
		v, err := s.list(r.queue)
		if err != nil {
			return s.unresolvedLocked(r, err)
		}
		mine := v.ofUUID(r.uuid)
		n, ok := v.ofOwner(tag, r.uuid)
		if !ok || len(mine) == 0 || !before(n.seq, mine[0].seq) {
			return nil
		}
		data, stat, err := s.conn.Get(r.queue + "/" + n.name)
		if errors.Is(err, zk.ErrNoNode) {
			continue
		}
		if err != nil {
			return s.unresolvedLocked(r, classed("read "+r.queue+"/"+n.name, err))
		}
		d := readData(n.name, data)
		if d.Owner != t.Owner {
			return nil
		}
		if t.Units > v.unitsAt(n.seq) {
			return s.unresolvedLocked(r, &driver.Error{Class: driver.Refused, Err: driver.ErrUpgrade})
		}
		token := d.Token
		if token == 0 {
			token = uint64(stat.Czxid) + v.base(n.seq)
		}
		joined, err := s.shareNodeLocked(r, t, n, token)
		if err != nil {
			return s.unresolvedLocked(r, err)
		}
		if joined {
			return s.resolveLocked(r)
		}
	}
}

// unitsAt returns the units of the place with this number.
func (v *view) unitsAt(seq int32) int64 {
	units := int64(0)
	for _, n := range v.nodes {
		if n.seq == seq {
			units = max(units, n.units)
		}
	}
	return units
}
