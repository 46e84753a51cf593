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
	for i, r := range recs {
		if r != nil && err == nil {
			places[i] = answers[i]
		} else if r != nil {
			places[i].Err = err
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
	if !s.up() {
		for _, i := range at {
			answers[i].Err = s.away()
		}
		return
	}
	var alive []*entry
	var places, over []int
	for _, i := range at {
		if recs[i].extend(began) {
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
		answers[i], answers[i].Err = r.overdueLocked()
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
			answers[i], answers[i].Err = alive[k].answer(began)
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
		recs[i].MustLeave, recs[i].leaving = true, true // from here on no event grants the ticket, and nothing renews it
		s.mu.Unlock()
	}
	answers := make([]driver.Status, len(refs))
	byQueue := make(map[string][]int)
	for i, r := range recs {
		if r == nil {
			answers[i].State = driver.Gone
		} else {
			byQueue[r.queue] = append(byQueue[r.queue], i)
		}
	}
	queues := slices.Collect(maps.Values(byQueue))
	err := d.do(ctx, func() {
		inParallel(len(queues), func(k int) {
			for _, i := range queues[k] { // in order: each may grant the next
				r := recs[i]
				r.busy.Lock()
				state, err := r.leaveLocked()
				r.s.mu.Lock()
				r.leaving = false
				r.s.mu.Unlock()
				r.busy.Unlock()
				answers[i] = driver.Status{State: state, Err: repeated(err)}
			}
		})
	}, slices.Collect(maps.Keys(in))...)
	if errors.Is(err, errSilent) {
		for _, r := range recs {
			if r != nil {
				r.s.mu.Lock()
				r.leaving = false // the sweep makes it leave
				r.s.mu.Unlock()
			}
		}
	}
	if err != nil {
		return nil, err
	}
	return answers, nil
}

// repeated returns the error of a Leave that the driver repeats in the background: it may
// be carried out at any time, although it was not sent so far.
func repeated(err error) error {
	if e, ok := errors.AsType[*driver.Error](err); ok && e.Class == driver.Unavailable {
		return &driver.Error{Class: driver.Unknown, Err: e.Err}
	}
	return err
}

// leaveLocked deletes the ticket's node and returns the state that the ticket had at
// that moment. This driver may not have heard yet that a waiter was granted. So the
// transaction that deletes the node of a waiter checks that the tickets that keep it
// out are still there.
func (r *entry) leaveLocked() (driver.State, error) {
	if !r.s.up() {
		return r.departLocked()
	}
	if r.createUnknown {
		found, err := r.find()
		if err != nil {
			return 0, r.s.retireIfRefused(err)
		}
		if !found {
			return r.departLocked()
		}
	}
	r.s.mu.Lock()
	state, path := r.State, r.path
	var behind []string
	if state == driver.Waiting && r.target != "" && !r.manyAhead {
		behind = []string{r.target}
	}
	r.s.mu.Unlock()
	for state != driver.Held && state != driver.Gone && path != "" {
		if behind == nil {
			v, err := r.list()
			if err != nil {
				return 0, r.s.retireIfRefused(err)
			}
			st := v.position(nameOf(path))
			if !st.found {
				break // the delete finds nothing, either
			}
			if st.held {
				r.s.mu.Lock()
				r.Push(driver.Status{State: driver.Held, Token: r.Token})
				r.s.mu.Unlock()
				break
			}
			if behind = v.keepingOut(r.queue, nameOf(path)); len(behind) > maxChecks {
				break
			}
		}
		ops := make([]any, 0, len(behind)+1)
		for _, p := range behind {
			ops = append(ops, &zk.CheckVersionRequest{Path: p, Version: -1})
		}
		res, err := r.s.conn.Multi(append(ops, &zk.DeleteRequest{Path: path, Version: -1})...)
		if err == nil {
			r.forget()
			return driver.Waiting, nil
		}
		failed := failing(res)
		if failed < 0 {
			return 0, r.s.retireIfRefused(classed("delete "+path, err))
		}
		if failed == len(ops) || !errors.Is(res[failed].Error, zk.ErrNoNode) {
			break // the check is refused, or the node is: departLocked tells
		}
		behind = nil
	}
	return r.departLocked()
}

// maxChecks is the most nodes that one transaction checks.
const maxChecks = 1000

// departLocked deletes the ticket's node and returns the state that the ticket last
// was known to have. Every sweep repeats it until it has succeeded.
func (r *entry) departLocked() (driver.State, error) {
	r.s.mu.Lock()
	r.MustLeave = true
	r.unwatch()
	state, path, connected := r.State, r.path, r.s.connected
	r.s.mu.Unlock()
	if state == driver.Gone || path == "" && !r.createUnknown {
		r.forget()
		return driver.Gone, nil
	}
	if !connected {
		return 0, r.s.away()
	}
	if r.createUnknown {
		if err := r.deleteNodes(); err != nil {
			return 0, r.s.retireIfRefused(err)
		}
		if state == 0 {
			state = driver.Gone
		}
	} else {
		err := r.s.conn.Delete(path, -1)
		if errors.Is(err, zk.ErrNoNode) {
			state = driver.Gone
		} else if err != nil {
			return 0, r.s.retireIfRefused(classed("delete "+path, err))
		}
	}
	if state == 0 {
		state = driver.Waiting
	}
	r.forget()
	return state, nil
}

// deleteNodes deletes all nodes of a ticket whose create had no answer. r.busy is
// held.
func (r *entry) deleteNodes() error {
	if err := r.s.sync(); err != nil {
		return err
	}
	children, _, err := r.s.conn.Children(r.queue)
	if err != nil && !errors.Is(err, zk.ErrNoNode) {
		return classed("list "+r.queue, err)
	}
	v := viewOf(children)
	for _, n := range v.ofUUID(r.uuid) {
		path := r.queue + "/" + n.name
		if err := r.s.conn.Delete(path, -1); err != nil && !errors.Is(err, zk.ErrNoNode) {
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
	if r.path == "" || r.State == driver.Gone {
		return nil
	}
	r.MustLeave = true
	return r
}

func (r *entry) where() string {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	return r.path
}

// replacedBy notes that another ticket's Join has removed the node of r.
func (r *entry) replacedBy() {
	r.s.d.addTombstone(r.uuid)
	r.forget()
}

// replace makes a ticket leave by a request of its own, where the Join's
// transaction cannot remove it.
func (d *Driver) replace(t *driver.Ticket) error {
	if t == nil {
		return nil
	}
	r := d.find(nodeUUID(t.ID))
	if r == nil {
		return nil
	}
	d.addTombstone(r.uuid)
	r.busy.Lock()
	defer r.busy.Unlock()
	_, err := r.departLocked()
	return err
}
