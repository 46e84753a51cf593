package zklock

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/holdfast-go/holdfast/driver"
)

// Renew implements [driver.Driver]. A batch takes one request, and one more for
// each ticket that is renewed for the first time or over a new connection.
func (d *Driver) Renew(ctx context.Context, refs []driver.Ref) ([]driver.Status, error) {
	if err := d.checkOpen(ctx); err != nil {
		return nil, err
	}
	began := time.Now()
	places := make([]driver.Status, len(refs))
	bySession := make(map[*session][]int)
	recs := make([]*entry, len(refs))
	for i, ref := range refs {
		if r := d.find(nodeUUID(ref.ID)); r != nil {
			recs[i] = r
			bySession[r.s] = append(bySession[r.s], i)
		} else {
			places[i].State = driver.Gone
		}
	}
	answers := make([]driver.Status, len(refs))
	sessions := slices.Collect(maps.Keys(bySession))
	err := d.do(ctx, func() {
		inParallel(len(sessions), func(k int) {
			s := sessions[k]
			s.renew(began, recs, bySession[s], answers)
		})
	}, sessions...)
	for i := range places {
		switch {
		case recs[i] == nil:
		case err != nil:
			places[i].Err = err
		default:
			places[i] = answers[i]
		}
	}
	if err != nil && driver.Before(ctx) != nil && len(bySession) > 0 {
		return nil, err
	}
	return places, nil
}

// renew answers for the tickets of one session. Their indices in recs and
// answers are at.
func (s *session) renew(began time.Time, recs []*entry, at []int, answers []driver.Status) {
	s.mu.Lock()
	connected := s.connected
	s.mu.Unlock()
	if !connected {
		for _, i := range at {
			answers[i].Err = s.away()
		}
		return
	}
	var alive []*entry
	var places, over []int
	for _, i := range at {
		if s.extend(recs[i], began) {
			alive, places = append(alive, recs[i]), append(places, i)
		} else {
			over = append(over, i)
		}
	}
	inParallel(len(over), func(k int) {
		i, r := over[k], recs[over[k]]
		s.mu.Lock()
		leaving := r.leaving // a Leave is under way, and must be the one that finds the node
		s.mu.Unlock()
		if leaving {
			answers[i].State = driver.Gone
			return
		}
		r.busy.Lock()
		defer r.busy.Unlock()
		var err error
		if answers[i], err = s.overdueLocked(r); err != nil {
			answers[i].Err = err
		}
	})
	if len(alive) == 0 {
		return
	}
	for k, err := range s.refresh(alive) {
		i := places[k]
		switch {
		case err != nil && driver.ClassOf(err) == driver.Refused:
			answers[i] = driver.Status{State: driver.Gone}
		case err != nil:
			answers[i].Err = err
		default:
			if answers[i], err = s.answer(alive[k], began); err != nil {
				answers[i] = driver.Status{Err: err}
			}
		}
	}
}

// Leave implements [driver.Driver]. If a ticket's Leave is not confirmed, the
// driver repeats it in the background for as long as the session lives.
func (d *Driver) Leave(ctx context.Context, refs []driver.Ref) ([]driver.Status, error) {
	if err := d.checkOpen(ctx); err != nil {
		return nil, err
	}
	recs := make([]*entry, len(refs))
	in := make(map[*session]bool)
	for i, ref := range refs {
		uuid := nodeUUID(ref.ID)
		d.addTombstone(uuid)
		if recs[i] = d.find(uuid); recs[i] == nil {
			continue
		}
		s := recs[i].s
		in[s] = true
		s.mu.Lock()
		recs[i].mustLeave, recs[i].leaving = true, true // from here on the ticket is neither watched nor renewed
		s.unwatch(recs[i])
		s.mu.Unlock()
	}
	answers := make([]driver.Status, len(refs))
	err := d.do(ctx, func() {
		inParallel(len(refs), func(i int) {
			r := recs[i]
			if r == nil {
				answers[i].State = driver.Gone
				return
			}
			r.busy.Lock()
			defer r.busy.Unlock()
			state, err := r.s.departLocked(r)
			r.s.mu.Lock()
			r.leaving = false
			r.s.mu.Unlock()
			answers[i] = driver.Status{State: state, Err: err}
		})
	}, slices.Collect(maps.Keys(in))...)
	if err != nil {
		return nil, err
	}
	return answers, nil
}

// departLocked deletes the ticket's node and returns the state that it found. Every
// sweep repeats it until it has succeeded.
func (s *session) departLocked(r *entry) (driver.State, error) {
	s.mu.Lock()
	r.mustLeave = true
	s.unwatch(r)
	state, path, connected := r.state, r.path, s.connected
	s.mu.Unlock()
	if state == driver.Gone || path == "" && !r.createUnknown {
		s.forget(r)
		return driver.Gone, nil
	}
	if !connected {
		return 0, s.away()
	}
	if r.createUnknown {
		if err := s.deleteNodes(r); err != nil {
			return 0, s.retireIfRefused(err)
		}
		if state == 0 {
			state = driver.Gone
		}
	} else {
		err := s.conn.Delete(path, -1)
		if errors.Is(err, zk.ErrNoNode) {
			state = driver.Gone
		} else if err != nil {
			return 0, s.retireIfRefused(classed("delete "+path, err))
		}
	}
	if state == 0 {
		state = driver.Waiting
	}
	s.forget(r)
	return state, nil
}

// deleteNodes deletes all nodes of a ticket whose create had no answer. r.busy is
// held.
func (s *session) deleteNodes(r *entry) error {
	if err := s.sync(); err != nil {
		return err
	}
	children, _, err := s.conn.Children(r.queue)
	if err != nil && !errors.Is(err, zk.ErrNoNode) {
		return classed("list "+r.queue, err)
	}
	v := viewOf(children)
	for _, n := range v.ofUUID(r.uuid) {
		path := r.queue + "/" + n.name
		if err := s.conn.Delete(path, -1); err != nil && !errors.Is(err, zk.ErrNoNode) {
			return classed("delete "+path, err)
		}
	}
	r.createUnknown = false
	return nil
}

// replaced returns the entry of a ticket that another ticket replaces, and
// marks it as leaving. It returns nil if the ticket is gone.
func (d *Driver) replaced(t *driver.Ticket) *entry {
	if t == nil {
		return nil
	}
	r := d.find(nodeUUID(t.ID))
	if r == nil {
		return nil
	}
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	if r.path == "" || r.state == driver.Gone {
		return nil
	}
	r.mustLeave = true
	return r
}

func (r *entry) where() string {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	return r.path
}

// replacedBy notes that another ticket's Join has removed the node of r.
func (s *session) replacedBy(r *entry) {
	s.d.addTombstone(r.uuid)
	s.forget(r)
}

// replace makes a ticket leave by a request of its own, where the Join's
// transaction cannot remove it.
func (d *Driver) replace(t *driver.Ticket) error {
	r := d.find(nodeUUID(t.ID))
	if r == nil {
		return nil
	}
	d.addTombstone(r.uuid)
	r.busy.Lock()
	defer r.busy.Unlock()
	_, err := r.s.departLocked(r)
	return err
}
