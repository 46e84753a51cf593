package zklock

import (
	"errors"

	"github.com/go-zookeeper/zk"

	"github.com/holdfast-go/holdfast/driver"
)

// A named owner's further tickets are ephemeral nodes with the number of its
// first one, made in a transaction that checks that the node they lean on is
// there. So a place is never empty between two of its tickets, and whoever
// waits behind it, in whatever language, finds another node of that number in
// its way when the first is gone.

// share joins the place that the ticket's owner has, if there is one.
func (s *session) share(r *record, t *driver.Ticket, v *view, tag string, wait bool) (shared bool, err error) {
	for {
		n, ok := v.ofOwner(tag, r.uuid)
		if !ok {
			return false, nil
		}
		data, stat, err := s.conn.Get(r.line + "/" + n.name)
		switch {
		case errors.Is(err, zk.ErrNoNode):
		case err != nil:
			return false, classed("read "+r.line+"/"+n.name, err)
		default:
			d := readData(n.name, data)
			if d.Owner != t.Owner {
				return false, nil // another owner of the same hash: a stranger
			}
			if t.Units > v.unitsAt(n.seq) {
				return false, driver.ErrUpgrade
			}
			if !wait && !v.standing(n.name).held {
				holder, err := s.holder(r.line, v.nodes[0].name)
				s.mu.Lock()
				r.state, r.holder = driver.Waiting, holder
				s.mu.Unlock()
				return true, err
			}
			token := d.Token
			if token == 0 {
				token = uint64(stat.Czxid) + v.base(n.seq)
			}
			joined, err := s.lean(r, t, n, token)
			if err != nil {
				return false, err
			}
			if joined {
				return true, s.settle(r)
			}
		}
		if *v, err = s.list(r.line); err != nil {
			return false, err
		}
	}
}

// lean makes the ticket's node in the place of n, and removes the one it may
// have already. It answers false when n is gone.
func (s *session) lean(r *record, t *driver.Ticket, n node, token uint64) (bool, error) {
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
			&zk.CheckVersionRequest{Path: r.line + "/" + n.name, Version: -1},
			&zk.SetDataRequest{Path: mark.path, Version: -1},
			&zk.CreateRequest{Path: r.line + "/" + name, Data: dataOf(t, token), Acl: s.d.acl, Flags: zk.FlagEphemeral},
		}
		if old != "" {
			ops = append(ops, &zk.DeleteRequest{Path: old, Version: -1})
			s.mu.Lock()
			delete(s.byPath, old) // its end is no loss
			s.mu.Unlock()
		}
		r.asked = true
		res, err := s.conn.Multi(ops...)
		if err == nil {
			r.asked = false
			s.sits(r, name, token, true)
			return true, nil
		}
		failed := failing(res)
		if failed < 0 {
			return false, classed("create in "+r.line, err)
		}
		r.asked = false
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
			return false, classed("create in "+r.line, why)
		}
	}
	return false, driver.Errorf(driver.NotDone, "create in %s: the path keeps vanishing", r.line)
}

// merge moves a ticket to the place of its owner that another ticket took at
// the same time and a little earlier.
func (s *session) merge(r *record, t *driver.Ticket, tag string) error {
	for {
		v, err := s.list(r.line)
		if err != nil {
			return s.unsettled(r, err)
		}
		mine := v.ofUUID(r.uuid)
		n, ok := v.ofOwner(tag, r.uuid)
		if !ok || len(mine) == 0 || !before(n.seq, mine[0].seq) {
			return nil
		}
		data, stat, err := s.conn.Get(r.line + "/" + n.name)
		if errors.Is(err, zk.ErrNoNode) {
			continue
		}
		if err != nil {
			return s.unsettled(r, classed("read "+r.line+"/"+n.name, err))
		}
		d := readData(n.name, data)
		if d.Owner != t.Owner {
			return nil
		}
		if t.Units > v.unitsAt(n.seq) {
			return s.unsettled(r, &driver.Error{Class: driver.Refused, Err: driver.ErrUpgrade})
		}
		token := d.Token
		if token == 0 {
			token = uint64(stat.Czxid) + v.base(n.seq)
		}
		joined, err := s.lean(r, t, n, token)
		if err != nil {
			return s.unsettled(r, err)
		}
		if joined {
			return s.settle(r)
		}
	}
}

// unitsAt is what the place of a number takes.
func (v *view) unitsAt(seq int32) int64 {
	units := int64(0)
	for _, n := range v.nodes {
		if n.seq == seq {
			units = max(units, n.units)
		}
	}
	return units
}
