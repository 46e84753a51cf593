package zklock

import (
	"context"
	"crypto/rand"
	"errors"
	"iter"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/holdfast-go/holdfast/driver"
)

// Inspect implements [driver.Driver]. Entry.Left is always the TTL: ZooKeeper
// does not tell how long a session still has.
func (d *Driver) Inspect(ctx context.Context, name string) (driver.Queue, error) {
	queue := driver.Queue{Name: name}
	if err := d.checkOpen(ctx); err != nil {
		return queue, err
	}
	s, err := d.any(ctx)
	if err != nil {
		return queue, err
	}
	var entries []driver.Entry
	var v view
	if e := d.do(ctx, func() {
		if v, err = s.list(d.queuePath(name)); err == nil {
			err = v.check(d.queuePath(name))
		}
		if err == nil {
			entries, err = s.entries(d.queuePath(name), &v)
		}
	}, s); e != nil {
		return queue, e
	}
	if err != nil {
		return queue, err
	}
	for _, e := range entries {
		if e.ID == "" {
			continue // the node went while the queue was read
		}
		queue.Limit = v.shown()
		queue.Token = max(queue.Token, e.Token)
		queue.Tickets = append(queue.Tickets, e)
	}
	return queue, nil
}

// entries reads all nodes of a queue.
func (s *session) entries(queue string, v *view) ([]driver.Entry, error) {
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
		data, stat, err := s.conn.Get(queue + "/" + n.name)
		if err != nil {
			if !errors.Is(err, zk.ErrNoNode) {
				errs[i] = classed("read "+queue+"/"+n.name, err)
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
			if e.Token = d.Token; e.Token == 0 {
				e.Token = uint64(stat.Czxid) + v.base(n.seq)
			}
		}
		entries[i] = e
	})
	return entries, errors.Join(errs...)
}

// shown returns the limit of a queue for display: a queue that has only kazoo's
// exclusive locks is shown as a mutex.
func (v *view) shown() int64 {
	if limit := v.limit(); limit != 0 || len(v.nodes) == 0 {
		return limit
	}
	return 1
}

// Names implements [driver.Driver]. It sends a request for each path that may
// be a queue.
func (d *Driver) Names(ctx context.Context, prefix string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		if err := d.checkOpen(ctx); err != nil {
			yield("", err)
			return
		}
		s, err := d.any(ctx)
		if err != nil {
			yield("", err)
			return
		}
		elements, err := doFor(ctx, s, func() ([]string, error) {
			elements, _, err := s.conn.Children(d.syncPath())
			return elements, err
		})
		if errors.Is(err, zk.ErrNoNode) {
			return
		}
		if err != nil {
			yield("", classed("list "+d.syncPath(), err))
			return
		}
		var wanted, plain []string
		for _, el := range elements {
			name, err := decodeName(el)
			if isHashed(el) || err == nil && strings.HasPrefix(name, prefix) {
				wanted, plain = append(wanted, el), append(plain, name)
			}
		}
		for len(wanted) > 0 {
			n := min(len(wanted), namesAtOnce)
			names, err := doFor(ctx, s, func() ([]string, error) { return s.namesOfQueues(wanted[:n], plain[:n]) })
			if err != nil {
				yield("", err)
				return
			}
			for _, name := range names {
				if name != "" && strings.HasPrefix(name, prefix) && !yield(name, nil) {
					return
				}
			}
			wanted, plain = wanted[n:], plain[n:]
		}
	}
}

// namesAtOnce is the number of queues listed before the first of their names is
// yielded; 16 listings are under way at a time.
const namesAtOnce = 256

// namesOfQueues is nameOfLine for several queues at once.
func (s *session) namesOfQueues(elements, plain []string) ([]string, error) {
	names, errs := make([]string, len(elements)), make([]error, len(elements))
	inParallel(len(elements), func(i int) { names[i], errs[i] = s.nameOfQueue(elements[i], plain[i]) })
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return names, nil
}

// nameOfQueue returns the name of a queue that has tickets, and "" for any other
// path.
func (s *session) nameOfQueue(element, name string) (string, error) {
	queue := s.d.base + "/" + element
	children, _, err := s.conn.Children(queue)
	if errors.Is(err, zk.ErrNoNode) || errors.Is(err, zk.ErrNoAuth) {
		return "", nil // gone, or not readable by this user
	}
	if err != nil {
		return "", classed("list "+queue, err)
	}
	v := viewOf(children)
	if len(v.nodes) == 0 || !isHashed(element) {
		if len(v.nodes) == 0 {
			name = ""
		}
		return name, nil
	}
	for _, n := range v.nodes {
		data, _, err := s.conn.Get(queue + "/" + n.name)
		if err != nil && !errors.Is(err, zk.ErrNoNode) {
			return "", classed("read "+queue+"/"+n.name, err)
		}
		if d := readData(n.name, data); err == nil && encodeName(d.Name) == element {
			return d.Name, nil
		}
	}
	return "", nil
}

// Break implements [driver.Driver]. The tickets of other libraries are
// identified by the names of their nodes.
func (d *Driver) Break(ctx context.Context, name, ticketID string) error {
	if err := d.checkOpen(ctx); err != nil {
		return err
	}
	s, err := d.any(ctx)
	if err != nil {
		return err
	}
	if e := d.do(ctx, func() { err = s.breakTicket(d.queuePath(name), ticketID) }, s); e != nil {
		return e
	}
	return err
}

func (s *session) breakTicket(queue, id string) error {
	children, _, err := s.conn.Children(queue)
	if err != nil && !errors.Is(err, zk.ErrNoNode) {
		return classed("list "+queue, err)
	}
	v := viewOf(children)
	uuid, found := nodeUUID(id), false
	for _, n := range v.nodes {
		if n.uuid != uuid && n.name != id {
			continue
		}
		switch err := s.conn.Delete(queue+"/"+n.name, -1); {
		case err == nil:
			found = true
		case !errors.Is(err, zk.ErrNoNode):
			return classed("delete "+queue+"/"+n.name, err)
		}
	}
	if !found {
		return driver.ErrNoTicket
	}
	return nil
}

// Identity implements [driver.Identifier]. The identity is the content of a
// node beside the queues; the first client that needs the node creates it, for
// good.
func (d *Driver) Identity(ctx context.Context) (string, error) {
	if err := d.checkOpen(ctx); err != nil {
		return "", err
	}
	s, err := d.any(ctx)
	if err != nil {
		return "", err
	}
	var id string
	if e := d.do(ctx, func() { id, err = s.identity() }, s); e != nil {
		return "", e
	}
	return id, err
}

func (s *session) identity() (string, error) {
	path := s.d.base + "/" + identityNode
	for range 5 {
		data, _, err := s.conn.Get(path)
		if err == nil {
			return "zk:" + string(data), nil
		}
		if !errors.Is(err, zk.ErrNoNode) {
			return "", classed("read "+path, err)
		}
		_, err = s.conn.Create(path, []byte(strings.ToLower(rand.Text())), zk.FlagPersistent, s.d.acl)
		if errors.Is(err, zk.ErrNoNode) {
			err = s.makeParents(s.d.base)
		}
		if err != nil && !errors.Is(err, zk.ErrNodeExists) {
			return "", classed("create "+path, err)
		}
	}
	return "", driver.Errorf(driver.NotDone, "create %s: the path keeps vanishing", path)
}
