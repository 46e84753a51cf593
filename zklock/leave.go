package zklock

import (
	"context"
	"errors"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/holdfast-go/holdfast/driver"
)

// Renew implements [driver.Driver]. A batch takes one request, besides one for
// each ticket that is renewed for the first time or over a new connection.
func (d *Driver) Renew(ctx context.Context, refs []driver.Ref) ([]driver.Place, error) {
	if err := d.before(ctx); err != nil {
		return nil, err
	}
	entry := time.Now()
	places := make([]driver.Place, len(refs))
	bySession := make(map[*session][]int)
	recs := make([]*record, len(refs))
	for i, ref := range refs {
		if r := d.find(nodeUUID(ref.ID)); r != nil {
			recs[i] = r
			bySession[r.s] = append(bySession[r.s], i)
		} else {
			places[i].State = driver.Gone
		}
	}
	answers := make([]driver.Place, len(refs))
	err := d.do(ctx, func() {
		var sessions []*session
		for s := range bySession {
			sessions = append(sessions, s)
		}
		each(len(sessions), func(k int) {
			s := sessions[k]
			s.renew(entry, recs, bySession[s], answers)
		})
	})
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

// renew answers for the tickets of one session, which are at these places.
func (s *session) renew(entry time.Time, recs []*record, at []int, answers []driver.Place) {
	s.mu.Lock()
	connected := s.connected
	s.mu.Unlock()
	if !connected {
		for _, i := range at {
			answers[i].Err = s.away()
		}
		return
	}
	var alive []*record
	var places []int
	for _, i := range at {
		if s.extend(recs[i], entry) {
			alive, places = append(alive, recs[i]), append(places, i)
		} else {
			answers[i].State = driver.Gone // the next sweep takes its node away
		}
	}
	if len(alive) == 0 {
		return
	}
	for k, err := range s.refresh(alive) {
		i := places[k]
		switch {
		case err != nil && driver.ClassOf(err) == driver.Refused:
			answers[i] = driver.Place{State: driver.Gone}
		case err != nil:
			answers[i].Err = err
		default:
			if answers[i], err = s.answer(alive[k], entry); err != nil {
				answers[i] = driver.Place{Err: err}
			}
		}
	}
}

// Leave implements [driver.Driver]. A ticket whose Leave is not confirmed goes
// on leaving by itself, for as long as its session lives.
func (d *Driver) Leave(ctx context.Context, refs []driver.Ref) ([]driver.Place, error) {
	if err := d.before(ctx); err != nil {
		return nil, err
	}
	recs := make([]*record, len(refs))
	for i, ref := range refs {
		uuid := nodeUUID(ref.ID)
		d.bury(uuid)
		if recs[i] = d.find(uuid); recs[i] == nil {
			continue
		}
		s := recs[i].s
		s.mu.Lock()
		recs[i].left, recs[i].leaving = true, true // nobody watches or renews it now
		s.unwatch(recs[i])
		s.mu.Unlock()
	}
	answers := make([]driver.Place, len(refs))
	err := d.do(ctx, func() {
		each(len(refs), func(i int) {
			r := recs[i]
			if r == nil {
				answers[i].State = driver.Gone
				return
			}
			r.busy.Lock()
			defer r.busy.Unlock()
			state, err := r.s.depart(r)
			r.s.mu.Lock()
			r.leaving = false
			r.s.mu.Unlock()
			answers[i] = driver.Place{State: state, Err: err}
		})
	})
	if err != nil {
		return nil, err
	}
	return answers, nil
}

// depart deletes the ticket's node and says what it found. It is repeated by
// every sweep until it has succeeded. The caller has busy.
func (s *session) depart(r *record) (driver.State, error) {
	s.mu.Lock()
	r.left = true
	s.unwatch(r)
	state, path, connected := r.state, r.path, s.connected
	s.mu.Unlock()
	if state == driver.Gone || path == "" && !r.asked {
		s.forget(r)
		return driver.Gone, nil
	}
	if !connected {
		return 0, s.away()
	}
	if r.asked {
		if err := s.scour(r); err != nil {
			return 0, err
		}
		if state == 0 {
			state = driver.Gone
		}
	} else {
		err := s.conn.Delete(path, -1)
		if errors.Is(err, zk.ErrNoNode) {
			state = driver.Gone
		} else if err != nil {
			return 0, classed("delete "+path, err)
		}
	}
	if state == 0 {
		state = driver.Waiting
	}
	s.forget(r)
	return state, nil
}

// scour deletes all nodes of a ticket whose create went unanswered.
func (s *session) scour(r *record) error {
	if err := s.sync(); err != nil {
		return err
	}
	children, _, err := s.conn.Children(r.line)
	if err != nil && !errors.Is(err, zk.ErrNoNode) {
		return classed("list "+r.line, err)
	}
	v := look(children)
	for _, n := range v.ofUUID(r.uuid) {
		path := r.line + "/" + n.name
		if err := s.conn.Delete(path, -1); err != nil && !errors.Is(err, zk.ErrNoNode) {
			return classed("delete "+path, err)
		}
	}
	r.asked = false
	return nil
}

// replaced returns the record of a ticket that another one replaces, marked as
// leaving; nil when it is gone.
func (d *Driver) replaced(t *driver.Ticket) *record {
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
	r.left = true
	return r
}

func (r *record) where() string {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	return r.path
}

// replacedBy: the node of r is gone, as part of another ticket's Join.
func (s *session) replacedBy(r *record) {
	s.d.bury(r.uuid)
	s.forget(r)
}

// replace leaves a ticket by itself, where that cannot be part of the Join.
func (d *Driver) replace(t *driver.Ticket) error {
	r := d.find(nodeUUID(t.ID))
	if r == nil {
		return nil
	}
	d.bury(r.uuid)
	r.busy.Lock()
	defer r.busy.Unlock()
	_, err := r.s.depart(r)
	return err
}
