package zklock

import (
	"errors"

	"github.com/go-zookeeper/zk"

	"github.com/holdfast-go/holdfast/driver"
)

// childKey is the key under which those wait who watch a line's children.
func childKey(line string) string { return line + "/" }

// settle finds out where the ticket stands and, when it waits, watches the one
// node it waits for. The caller has busy.
func (s *session) settle(r *record) error {
	s.mu.Lock()
	name := nameOf(r.path)
	epoch := s.epoch
	held := r.state == driver.Held || r.state == driver.Gone
	s.mu.Unlock()
	if held {
		return nil
	}
	if n, ok := parseNode(name); ok && spent(n.seq) {
		return s.restart(r)
	}
	// The first of a crowd goes on as that: it looks and watches in one request.
	for headed := r.first; ; {
		// What happens from here on makes it look again.
		s.mu.Lock()
		moved := r.moved
		s.mu.Unlock()
		var v view
		var err error
		if headed {
			s.mu.Lock()
			s.watch(r, childKey(r.line), false)
			s.mu.Unlock()
			children, stat, _, e := s.conn.ChildrenW(r.line)
			v, err = s.listed(r.line, children, stat, e)
		} else {
			v, err = s.list(r.line)
		}
		if err == nil && len(v.nodes) > maxLine {
			err = driver.Errorf(driver.Refused, "%s has %d tickets, the most is %d", r.line, len(v.nodes), maxLine)
		}
		st := v.standing(name)
		if err == nil && !st.found {
			s.mu.Lock()
			s.vanished(r)
			s.mu.Unlock()
			return nil
		}
		if have := v.limit(); err == nil && have != r.t.Limit {
			err = &driver.LimitError{Name: r.t.Name, Have: have, Want: r.t.Limit}
		}
		if err != nil {
			return s.unsettled(r, err)
		}
		if s.stands(r, &v, &st, epoch) {
			return s.ring(r, &st)
		}
		if st.crowd && st.head {
			if headed {
				r.first = true
				s.settled(r, moved) // watched before it was listed
				return nil
			}
			headed = true
			continue
		}
		r.first = false
		again, err := s.waitFor(r, &st)
		if err != nil {
			return s.unsettled(r, err)
		}
		if !again {
			s.settled(r, moved)
			return nil
		}
		headed = false
	}
}

// restart takes a ticket away whose number others may get too: the line has
// used its numbers up. An empty line is deleted, so that it begins anew; who is
// still in it has a lower number and comes to its turn first.
func (s *session) restart(r *record) error {
	if _, err := s.depart(r); err != nil {
		return err
	}
	switch err := s.conn.Delete(r.line, -1); {
	case err == nil, errors.Is(err, zk.ErrNoNode), errors.Is(err, zk.ErrNotEmpty):
	default:
		return classed("delete the empty line "+r.line, err)
	}
	return driver.Errorf(driver.NotDone, "%s has given its last number: it begins anew when nothing is left in it", r.line)
}

// settled: nothing that happened before is left to be looked at.
func (s *session) settled(r *record, moved int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r.seen = moved
}

// stands notes a standing and says whether the ticket holds.
func (s *session) stands(r *record, v *view, st *standing, epoch int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n, ok := parseNode(nameOf(r.path)); ok && !r.based {
		r.token += v.base(n.seq)
		r.based = true
	}
	r.ahead, r.crowd, r.epoch = st.ahead, st.crowd, epoch
	if r.state == driver.Held || r.state == driver.Gone {
		return r.state == driver.Held
	}
	if st.held {
		s.unwatch(r)
		r.state, r.holder = driver.Held, ""
		return true
	}
	r.state = driver.Waiting
	return false
}

// waitFor watches the node that is in the way. It says whether to look again,
// because that node has gone meanwhile.
func (s *session) waitFor(r *record, st *standing) (again bool, err error) {
	path := r.line + "/" + st.target
	s.mu.Lock()
	s.watch(r, path, st.alone)
	s.mu.Unlock()
	data, stat, _, err := s.conn.GetW(path)
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.state != driver.Waiting {
		return false, nil // its turn came while it asked
	}
	switch {
	case errors.Is(err, zk.ErrNoNode):
		s.unwatch(r)
		return true, nil
	case err != nil:
		return false, classed("watch "+path, err)
	case stat.EphemeralOwner == 0:
		return false, foreign(path, "stands in the line for ever: it is no ticket but a node that no session owns")
	case st.crowd && stat.Version > 0:
		// It has been granted, and said so before the watch was there.
		s.unwatch(r)
		return true, nil
	}
	if st.ahead == 1 {
		r.holder = readData(st.target, data).Meta
	}
	return false, nil
}

// ring tells the next one in a crowd that it is the first now of those who
// wait: it watches this ticket's node, and no other sign would reach it.
func (s *session) ring(r *record, st *standing) error {
	if st.last || r.t.Limit == 1 || r.t.Limit == driver.RWLimit {
		return nil
	}
	s.mu.Lock()
	path, token := r.path, uint64(0)
	if r.t.Owner != "" {
		token = r.token
	}
	s.mu.Unlock()
	// Whether it arrives or not, the next one looks again when it is renewed.
	_, _ = s.conn.Set(path, dataOf(r.t, token), -1)
	return nil
}

// unsettled: the ticket's standing could not be found out. One that may never
// have a place takes its node away; for the others it is only unknown.
func (s *session) unsettled(r *record, err error) error {
	s.mu.Lock()
	fresh := r.state == 0
	r.epoch = -1
	s.unwatch(r)
	s.mu.Unlock()
	if driver.ClassOf(err) != driver.Refused {
		if fresh {
			r.asked = true // the next Join finds the node and goes on
		}
		return err
	}
	if _, e := s.depart(r); e != nil {
		return e
	}
	return err
}

// resettle follows an event: what the ticket waited for has happened.
func (s *session) resettle(r *record) {
	r.busy.Lock()
	defer r.busy.Unlock()
	s.mu.Lock()
	idle := r.state != driver.Waiting || r.left || r.moved == r.seen
	s.mu.Unlock()
	if idle {
		return
	}
	err := s.settle(r)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err != nil && driver.ClassOf(err) == driver.Refused:
		// The core asks anew, and hears why.
		s.push(task{id: r.id, place: driver.Place{State: driver.Gone}})
	case err != nil:
		r.moved++ // the next renewal goes on
	case r.state == driver.Held && !r.left:
		s.push(task{id: r.id, place: driver.Place{State: driver.Held, Token: r.token}})
	}
}
