package zklock

import (
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/holdfast-go/holdfast/driver"
)

// queueNode is the node of a queue, read in a session.
type queueNode struct {
	s    *session
	path string
}

// list reads the queue once. It refuses a path that holds foreign data.
func (q queueNode) list() (view, error) {
	children, stat, err := q.s.conn.Children(q.path)
	return q.listed(children, stat, err)
}

func (q queueNode) listed(children []string, stat *zk.Stat, err error) (view, error) {
	if errors.Is(err, zk.ErrNoNode) {
		return view{}, nil
	}
	if err != nil {
		return view{}, classed("list "+q.path, err)
	}
	if stat.DataLength > 0 {
		return view{}, foreign(q.path, fmt.Sprintf("holds %d bytes of somebody's data and is not a line", stat.DataLength))
	}
	if stat.EphemeralOwner != 0 {
		return view{}, foreign(q.path, "is an ephemeral node and not a line")
	}
	v := viewOf(children)
	v.pzxid = stat.Pzxid
	q.deleteStrays(&v)
	return v, nil
}

// holder returns the metadata in a node.
func (q queueNode) holder(name string) (string, error) {
	data, _, err := q.s.conn.Get(q.path + "/" + name)
	if err != nil && !errors.Is(err, zk.ErrNoNode) {
		return "", classed("read "+q.path+"/"+name, err)
	}
	if err != nil {
		return "", nil
	}
	return readData(name, data).Meta, nil
}

// deleteStrays deletes nodes that this client made but has no entry of. Creates left
// them that were carried out although they seemed to have failed.
func (q queueNode) deleteStrays(v *view) {
	d := q.s.d
	var found []string
	d.mu.Lock()
	for _, n := range v.nodes {
		if n.uuid != "" && d.clients[n.uuid[:clientLen]] && d.tickets.Find(binaryUUID(n.uuid)) == nil {
			found = append(found, n.name)
		}
	}
	d.mu.Unlock()
	for _, name := range found {
		_ = q.s.conn.Delete(q.path+"/"+name, -1) // if this fails, the next listing shows the node again
	}
}

// entries reads all nodes of a queue.
func (q queueNode) entries(v *view) ([]driver.Entry, error) {
	entries := make([]driver.Entry, len(v.nodes))
	errs := make([]error, len(v.nodes))
	held := make(map[int32]bool)
	units := make(map[int32]int64)
	sum, limit := int64(0), v.shown()
	for _, p := range v.places() {
		n := p.nodes[0]
		if n.limit != limit {
			p.units = limit
		}
		sum = add(sum, p.units)
		held[n.seq], units[n.seq] = sum <= limit, p.units
	}
	inParallel(len(v.nodes), func(i int) {
		n := v.nodes[i]
		data, stat, err := q.s.conn.Get(q.path + "/" + n.name)
		if err != nil {
			if !errors.Is(err, zk.ErrNoNode) {
				errs[i] = classed("read "+q.path+"/"+n.name, err)
			}
			return
		}
		d := readData(n.name, data)
		e := driver.Entry{
			ID: d.ID, Owner: d.Owner, Meta: d.Meta, Units: units[n.seq], State: driver.Waiting,
			Left: time.Duration(d.TTL) * time.Millisecond,
		}
		if held[n.seq] {
			e.State = driver.Held
			e.Token = v.tokenOf(n, d, stat)
		}
		entries[i] = e
	})
	return entries, errors.Join(errs...)
}

// name returns the name of the queue if it has tickets, and "" for any other path.
func (q queueNode) name(element, name string) (string, error) {
	children, _, err := q.s.conn.Children(q.path)
	if errors.Is(err, zk.ErrNoNode) || errors.Is(err, zk.ErrNoAuth) {
		return "", nil // gone, or not readable by this user
	}
	if err != nil {
		return "", classed("list "+q.path, err)
	}
	v := viewOf(children)
	if len(v.nodes) == 0 {
		return "", nil
	}
	if !isHashed(element) {
		return name, nil
	}
	for _, n := range v.nodes {
		data, _, err := q.s.conn.Get(q.path + "/" + n.name)
		if err != nil && !errors.Is(err, zk.ErrNoNode) {
			return "", classed("read "+q.path+"/"+n.name, err)
		}
		if d := readData(n.name, data); err == nil && encodeName(d.Name) == element {
			return d.Name, nil
		}
	}
	return "", nil
}

func (q queueNode) breakTicket(id string) error {
	children, _, err := q.s.conn.Children(q.path)
	if err != nil && !errors.Is(err, zk.ErrNoNode) {
		return classed("list "+q.path, err)
	}
	v := viewOf(children)
	uuid, found := nodeUUID(id), false
	for _, n := range v.nodes {
		if n.uuid != uuid && n.name != id {
			continue
		}
		switch err := q.s.conn.Delete(q.path+"/"+n.name, -1); {
		case err == nil:
			found = true
		case !errors.Is(err, zk.ErrNoNode):
			return classed("delete "+q.path+"/"+n.name, err)
		}
	}
	if !found {
		return driver.ErrNoTicket
	}
	return nil
}
