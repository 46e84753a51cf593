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

// Inspect implements [driver.Driver]. Entry.Left is always the TTL: how long a
// session has still to live, ZooKeeper tells nobody.
func (d *Driver) Inspect(ctx context.Context, name string) (driver.Line, error) {
	line := driver.Line{Name: name}
	if err := d.before(ctx); err != nil {
		return line, err
	}
	s, err := d.any(ctx)
	if err != nil {
		return line, err
	}
	var entries []driver.Entry
	var v view
	if e := d.do(ctx, func() {
		if v, err = s.list(d.linePath(name)); err == nil {
			entries, err = s.entries(d.linePath(name), &v)
		}
	}); e != nil {
		return line, e
	}
	if err != nil {
		return line, err
	}
	for _, e := range entries {
		if e.ID == "" {
			continue // gone meanwhile
		}
		line.Limit = v.limit()
		line.Token = max(line.Token, e.Token)
		line.Tickets = append(line.Tickets, e)
	}
	return line, nil
}

// entries reads all nodes of a line.
func (s *session) entries(line string, v *view) ([]driver.Entry, error) {
	entries := make([]driver.Entry, len(v.nodes))
	errs := make([]error, len(v.nodes))
	held := make(map[int32]bool)
	units := make(map[int32]int64)
	sum := int64(0)
	for _, p := range v.places() {
		n := p.nodes[0]
		if n.limit != v.limit() {
			p.units = v.limit()
		}
		sum = add(sum, p.units)
		held[n.seq], units[n.seq] = sum <= v.limit(), p.units
	}
	each(len(v.nodes), func(i int) {
		n := v.nodes[i]
		data, stat, err := s.conn.Get(line + "/" + n.name)
		if err != nil {
			if !errors.Is(err, zk.ErrNoNode) {
				errs[i] = classed("read "+line+"/"+n.name, err)
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

// Names implements [driver.Driver]. It takes a request for each path that may
// be a line.
func (d *Driver) Names(ctx context.Context, prefix string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		if err := d.before(ctx); err != nil {
			yield("", err)
			return
		}
		s, err := d.any(ctx)
		if err != nil {
			yield("", err)
			return
		}
		elements, err := doFor(ctx, d, func() ([]string, error) {
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
		for _, el := range elements {
			name, err := decodeName(el)
			if !hashed(el) && (err != nil || !strings.HasPrefix(name, prefix)) {
				continue
			}
			name, err = doFor(ctx, d, func() (string, error) { return s.nameOfLine(el, name) })
			if err != nil {
				yield("", err)
				return
			}
			if name != "" && strings.HasPrefix(name, prefix) && !yield(name, nil) {
				return
			}
		}
	}
}

// nameOfLine returns the name of a line that has tickets, else nothing.
func (s *session) nameOfLine(element, name string) (string, error) {
	line := s.d.base + "/" + element
	children, _, err := s.conn.Children(line)
	if errors.Is(err, zk.ErrNoNode) || errors.Is(err, zk.ErrNoAuth) {
		return "", nil // gone, or not ours
	}
	if err != nil {
		return "", classed("list "+line, err)
	}
	v := look(children)
	if len(v.nodes) == 0 || !hashed(element) {
		if len(v.nodes) == 0 {
			name = ""
		}
		return name, nil
	}
	for _, n := range v.nodes {
		data, _, err := s.conn.Get(line + "/" + n.name)
		if err != nil && !errors.Is(err, zk.ErrNoNode) {
			return "", classed("read "+line+"/"+n.name, err)
		}
		if d := readData(n.name, data); err == nil && encodeName(d.Name) == element {
			return d.Name, nil
		}
	}
	return "", nil
}

// Break implements [driver.Driver]. The tickets of other libraries go by the
// names of their nodes.
func (d *Driver) Break(ctx context.Context, name, ticketID string) error {
	if err := d.before(ctx); err != nil {
		return err
	}
	s, err := d.any(ctx)
	if err != nil {
		return err
	}
	if e := d.do(ctx, func() { err = s.breakTicket(d.linePath(name), ticketID) }); e != nil {
		return e
	}
	return err
}

func (s *session) breakTicket(line, id string) error {
	children, _, err := s.conn.Children(line)
	if err != nil && !errors.Is(err, zk.ErrNoNode) {
		return classed("list "+line, err)
	}
	v := look(children)
	uuid, found := nodeUUID(id), false
	for _, n := range v.nodes {
		if n.uuid != uuid && n.name != id {
			continue
		}
		switch err := s.conn.Delete(line+"/"+n.name, -1); {
		case err == nil:
			found = true
		case !errors.Is(err, zk.ErrNoNode):
			return classed("delete "+line+"/"+n.name, err)
		}
	}
	if !found {
		return driver.ErrNoTicket
	}
	return nil
}

// Identity implements [driver.Identifier]: what a node beside the lines says,
// which the first who asks makes. It stays for good.
func (d *Driver) Identity(ctx context.Context) (string, error) {
	if err := d.before(ctx); err != nil {
		return "", err
	}
	s, err := d.any(ctx)
	if err != nil {
		return "", err
	}
	var id string
	if e := d.do(ctx, func() { id, err = s.identity() }); e != nil {
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
