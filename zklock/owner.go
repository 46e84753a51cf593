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
func (j join) share(v *view) (shared bool, err error) {
	for {
		n, ok := v.ofOwner(j.tag, j.r.uuid)
		if !ok {
			return false, nil
		}
		data, stat, err := j.r.s.conn.Get(j.r.queue + "/" + n.name)
		switch {
		case errors.Is(err, zk.ErrNoNode):
		case err != nil:
			return false, classed("read "+j.r.queue+"/"+n.name, err)
		default:
			d := readData(n.name, data)
			if d.Owner != j.t.Owner {
				return false, nil // another owner with the same hash: a stranger
			}
			if j.t.Units > v.unitsAt(n.seq) {
				return false, driver.ErrUpgrade
			}
			if !j.wait && !v.position(n.name).held {
				holder, err := queueNode{j.r.s, j.r.queue}.holder(v.nodes[0].name)
				j.r.s.mu.Lock()
				j.r.State, j.r.holder = driver.Waiting, holder
				j.r.s.mu.Unlock()
				return true, err
			}
			joined, err := j.shareNodeLocked(n, v.tokenOf(n, d, stat))
			if err != nil {
				return false, err
			}
			if joined {
				return true, j.r.resolveLocked()
			}
		}
		if *v, err = j.r.list(); err != nil {
			return false, err
		}
	}
}

// shareNodeLocked makes the ticket's node in the place of n, and removes the node that the
// ticket may already have. It returns false if n is gone.
func (j join) shareNodeLocked(n node, token uint64) (bool, error) {
	name := nodeName(j.r.uuid, n.owner, n.units, n.limit) + formatSeq(n.seq)
	for range 10 {
		mark, err := j.r.s.ownNode()
		if err != nil {
			return false, err
		}
		j.r.s.mu.Lock()
		old := j.r.path
		j.r.s.mu.Unlock()
		ops := []any{
			&zk.CheckVersionRequest{Path: j.r.queue + "/" + n.name, Version: -1},
			&zk.SetDataRequest{Path: mark.path, Version: -1},
			&zk.CreateRequest{Path: j.r.queue + "/" + name, Data: dataOf(j.t, token), Acl: j.r.s.d.acl, Flags: zk.FlagEphemeral},
		}
		if old != "" {
			ops = append(ops, &zk.DeleteRequest{Path: old, Version: -1})
			j.r.s.mu.Lock()
			delete(j.r.s.byPath, old) // the end of this node is no loss
			j.r.s.mu.Unlock()
		}
		j.r.createUnknown = true
		res, err := j.r.s.conn.Multi(ops...)
		if err == nil {
			j.r.createUnknown = false
			j.r.setNodeLocked(name, token, true)
			return true, nil
		}
		failed := failing(res)
		if failed < 0 {
			return false, classed("create in "+j.r.queue, err)
		}
		j.r.createUnknown = false
		if old != "" {
			j.r.s.mu.Lock()
			j.r.s.byPath[old] = j.r
			j.r.s.mu.Unlock()
		}
		switch why := res[failed].Error; {
		case failed == 0 && errors.Is(why, zk.ErrNoNode):
			return false, nil
		case failed == 1 && errors.Is(why, zk.ErrNoNode):
			j.r.s.lostMark(mark.path)
		default:
			return false, classed("create in "+j.r.queue, why)
		}
	}
	return false, driver.Errorf(driver.NotDone, "create in %s: the path keeps vanishing", j.r.queue)
}

// mergeLocked moves a ticket to its owner's place, if another ticket of the owner
// took a place at the same time and a little earlier.
func (j join) mergeLocked() error {
	for {
		v, err := j.r.list()
		if err != nil {
			return j.r.unresolvedLocked(err)
		}
		mine := v.ofUUID(j.r.uuid)
		n, ok := v.ofOwner(j.tag, j.r.uuid)
		if !ok || len(mine) == 0 || !before(n.seq, mine[0].seq) {
			return nil
		}
		data, stat, err := j.r.s.conn.Get(j.r.queue + "/" + n.name)
		if errors.Is(err, zk.ErrNoNode) {
			continue
		}
		if err != nil {
			return j.r.unresolvedLocked(classed("read "+j.r.queue+"/"+n.name, err))
		}
		d := readData(n.name, data)
		if d.Owner != j.t.Owner {
			return nil
		}
		if j.t.Units > v.unitsAt(n.seq) {
			return j.r.unresolvedLocked(&driver.Error{Class: driver.Refused, Err: driver.ErrUpgrade})
		}
		joined, err := j.shareNodeLocked(n, v.tokenOf(n, d, stat))
		if err != nil {
			return j.r.unresolvedLocked(err)
		}
		if joined {
			return j.r.resolveLocked()
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
