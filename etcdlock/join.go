package etcdlock

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// Join implements [driver.Driver].
//
// For a ticket without an owner, Join is one transaction. It makes the key only
// if there is no tombstone and no place with another limit, and it reads the
// first place and the predecessor. If the units must be counted before the key
// may be made (wait=false, limit above 1), Join reads the queue first. The
// ticket in Replaces leaves before, in requests of its own.
func (d *Driver) Join(ctx context.Context, t *driver.Ticket, wait bool) (driver.Status, error) {
	if err := d.life.checkOpen(ctx); err != nil {
		return driver.Status{}, err
	}
	start := time.Now()
	d.mu.Lock()
	p := d.findLocked(t)
	late := p != nil && p.mustLeave
	gone := p != nil && p.over.Load() || p == nil && d.tombstones.Has(t.ID)
	known := !gone && p != nil && p.ownRev() != 0
	d.mu.Unlock()
	if gone {
		return driver.Status{State: driver.Gone}, nil
	}
	if late {
		return d.overdue(ctx, p)
	}
	if old := t.Replaces; old != nil {
		if _, err := d.leave(ctx, driver.Ref{Ticket: old, State: driver.Held}); err != nil {
			return driver.Status{}, err
		}
	}
	if known {
		return d.joinAgain(ctx, p, wait, start)
	}
	s, err := d.session(ctx, t.TTL)
	if err != nil {
		return driver.Status{}, err
	}
	d.mu.Lock()
	if p = d.findLocked(t); p == nil {
		p = d.enterLocked(t, s)
	} else if p.sess.over {
		// An earlier Join of the ticket, which may have been carried out, was
		// in a session that is over: any place that it made ended with the
		// session.
		d.forgetLocked(p)
		p = d.enterLocked(t, s)
	}
	d.mu.Unlock()
	for range maxTries {
		var r joined
		switch {
		case t.Owner != "":
			r, err = d.joinOwner(ctx, p, wait, start)
		case !wait && t.Limit > 1:
			r, err = d.tryShared(ctx, p)
		default:
			r, err = d.joinOnce(ctx, p, wait)
		}
		if err == nil && r.again {
			continue
		}
		a, err := d.finishJoin(ctx, p, r, err, start)
		if err != nil || wait || a.State != driver.Waiting {
			return a, err
		}
		// An earlier Join had wait=true, and this one found its place.
		if _, err := d.leave(ctx, driver.Ref{Ticket: t, State: driver.Waiting}); err != nil {
			return driver.Status{}, err
		}
		return driver.Status{State: driver.Gone, Holder: a.Holder}, nil
	}
	return driver.Status{}, driver.Errorf(driver.NotDone, "gave up after %d attempts: the queue kept changing", maxTries)
}

// maxTries bounds how often one call starts again because the queue changed
// between two of its requests.
const maxTries = 8

// joined is the result of one attempt to join.
type joined struct {
	state  driver.State
	rev    int64
	place  driver.Status // Ahead, Recheck, Holder
	first  *entry        // the first holder
	pred   *entry        // the predecessor
	again  bool          // the queue has changed: try again
	absent bool          // the store has no place of the ticket
}

// finishJoin records the result of an attempt in the driver, and completes the
// status with the promise of the lease.
func (d *Driver) finishJoin(ctx context.Context, p *place, r joined, err error, start time.Time) (driver.Status, error) {
	if err != nil {
		if noLease(err) {
			d.verifySession(p.sess)
		}
		if driver.ClassOf(err) == driver.Refused {
			d.forgetRefused(p)
		}
		return driver.Status{}, err
	}
	if r.absent { // wait=false found too few free units, or a tombstone forbids the place
		d.mu.Lock()
		d.forgetLocked(p)
		if r.state != driver.Gone {
			p.t.DriverData = nil
		}
		d.mu.Unlock()
		r.place.State, r.place.Recheck = driver.Gone, 0
		return r.place, nil
	}
	if uint64(r.rev) < p.t.MinToken {
		if _, err := d.leave(ctx, driver.Ref{Ticket: p.t}); err != nil {
			return driver.Status{}, err
		}
		return driver.Status{}, driver.Errorf(driver.Refused, "tokens are the store's revisions: %d is below the floor of %d", r.rev, p.t.MinToken)
	}
	d.mu.Lock()
	r.place.State = d.setPlacedLocked(p, r.rev, r.state)
	if r.pred != nil && p.member == "" {
		p.predecessorKey = r.pred.key
	}
	if r.pred != nil && r.pred.ours && r.place.Ahead == 1 && p.t.Limit == 1 {
		p.onlyPredecessor = r.pred.key
	}
	if r.state == driver.Waiting && r.pred != nil && !r.pred.ours {
		d.janitor.scheduleCheckLocked(p, 0) // no client will wake it
	}
	p.expiresAt = time.Now().Add(driver.Keep(p.t.TTL))
	d.mu.Unlock()
	return d.answer(ctx, p, r.place, start)
}

// answer adds the promise of the lease to the status of a place.
func (d *Driver) answer(ctx context.Context, p *place, a driver.Status, start time.Time) (driver.Status, error) {
	if a.State == driver.Gone {
		return a, nil
	}
	d.mu.Lock()
	own, owner, rev := p.sess, p.owner, p.rev
	d.mu.Unlock()
	lease, err := d.promise(ctx, own, start)
	if err == nil && owner != nil {
		var l time.Duration
		l, err = d.promise(ctx, owner, start)
		lease = min(lease, max(l, 0))
	}
	if err == errOver {
		d.onGone(p)
		return driver.Status{State: driver.Gone}, nil
	}
	if err != nil {
		return driver.Status{}, err
	}
	// Since the place was read, its time may have ended, or it may have left;
	// another ticket may hold by now. The check and the new due time share one
	// critical section, so that nothing comes between them.
	d.mu.Lock()
	gone := p.mustLeave || p.state == driver.Gone
	if !gone {
		p.expiresAt = time.Now().Add(driver.Keep(p.t.TTL))
	}
	d.mu.Unlock()
	if gone {
		return d.overdue(ctx, p)
	}
	a.Lease = min(lease, p.t.TTL)
	if a.State == driver.Held {
		a.Token = uint64(rev)
		a.Ahead, a.Recheck = 0, 0
	} else {
		a.Recheck = d.recheckUnwatched(own, a.Recheck)
	}
	return a, nil
}

// overdue answers for a place whose time is over. Gone is the store's word, so
// overdue removes the place there first. Without an answer the state is
// unknown, and overdue returns an error.
func (d *Driver) overdue(ctx context.Context, p *place) (driver.Status, error) {
	d.mu.Lock()
	left := p.left || p.state == driver.Gone
	d.mu.Unlock()
	if left {
		return driver.Status{State: driver.Gone}, nil
	}
	if _, err := d.leave(ctx, driver.Ref{Ticket: p.t, State: driver.Waiting}); err != nil {
		return driver.Status{}, err
	}
	return driver.Status{State: driver.Gone}, nil
}

// joinAgain finds and renews the place that a ticket already has.
func (d *Driver) joinAgain(ctx context.Context, p *place, wait bool, start time.Time) (driver.Status, error) {
	places, err := d.renew(ctx, []*place{p}, start)
	if err != nil {
		return driver.Status{}, err
	}
	a := places[0]
	if a.Err != nil {
		return driver.Status{}, a.Err
	}
	if a.State == driver.Waiting && !wait {
		if _, err := d.leave(ctx, driver.Ref{Ticket: p.t, State: driver.Waiting}); err != nil {
			return driver.Status{}, err
		}
		return driver.Status{State: driver.Gone, Holder: a.Holder}, nil
	}
	return a, nil
}

// joinOnce sends the transaction that makes the place.
func (d *Driver) joinOnce(ctx context.Context, p *place, wait bool) (joined, error) {
	cmp := d.preconditions(p)
	if !wait {
		cmp = append(cmp[1:2:2], empty(p.queue, after(p.queue)))
	}
	then := []*pb.RequestOp{
		opPut(p.key, p.value, p.sess.id),
		opGet(newest(p.queue, 0, 2)),
		opGet(limit(inOrder(p.queue), 1)),
	}
	if p.t.Limit > 1 {
		then = append(then, opGet(keysOnly(inOrder(p.queue))))
	}
	resp, err := d.send(ctx, p.sess, cmp, then, d.conflictReads(p))
	if err != nil {
		return joined{}, err
	}
	if resp.Succeeded {
		return d.placed(ctx, p, resp)
	}
	r, err := d.refusal(p, resp)
	switch {
	case err != nil || r.absent || r.again:
		return r, err
	case r.rev != 0: // an earlier request made it
		return d.find1(ctx, p, r.rev)
	case wait:
		return joined{again: true}, nil
	}
	r.absent = true
	if r.first != nil {
		r.place.Holder = r.first.meta
	}
	return r, nil
}

// send calls txn, and sends a keep-alive beside it if the promise needs one.
func (d *Driver) send(ctx context.Context, s *session, cmp []*pb.Compare, then, otherwise []*pb.RequestOp) (*pb.TxnResponse, error) {
	d.mu.Lock()
	if !s.over && !s.fresh(time.Now()) {
		d.requestKeepAliveLocked(s)
	}
	d.mu.Unlock()
	return d.txn(ctx, cmp, then, otherwise)
}

// placed reads the state and the predecessor of a new place.
func (d *Driver) placed(ctx context.Context, p *place, resp *pb.TxnResponse) (joined, error) {
	r := joined{rev: resp.Header.Revision, state: driver.Waiting}
	last, err := parseAll(p.queue, kvs(resp, 1), false)
	var es []entry
	if err == nil {
		es, err = parseAll(p.queue, kvs(resp, 2), false)
	}
	count := int(resp.Responses[1].GetResponseRange().Count)
	if err == nil && p.t.Limit > 1 {
		if es, err = parseAll(p.queue, kvs(resp, 3), true); err == nil {
			count = len(es)
			if holding(es) == count {
				r.state = driver.Held
			}
			if f, err := parse(p.queue, one(resp, 2), false); err == nil {
				es[0] = f
			}
		}
	} else if count == 1 {
		r.state = driver.Held
	}
	if err != nil { // a key in the queue is not a lock's: remove our place
		d.mu.Lock()
		d.setPlacedLocked(p, r.rev, driver.Waiting)
		d.mu.Unlock()
		// If this fails, the janitor repeats it.
		_, _ = d.leave(ctx, driver.Ref{Ticket: p.t})
		return r, fmt.Errorf("line %q: %w", p.t.Name, err)
	}
	if r.state == driver.Waiting {
		r.place.Ahead = count - 1
		r.pred = &last[1]
		r.place.Recheck = recheck(r.pred)
		if es[0].ours {
			r.place.Holder = es[0].meta
		}
	}
	return r, nil
}

// recheck returns when the store would drop e at the latest, if its client died
// just after e was read. The time is not known for a foreign place: the driver
// watches the key of a foreign predecessor at once.
func recheck(e *entry) time.Duration {
	if e == nil || !e.ours || e.ttl <= 0 {
		return 0
	}
	return leaseFor(e.ttl) + time.Second/2
}

// find1 reads the status of a place that an earlier request made.
func (d *Driver) find1(ctx context.Context, p *place, rev int64) (joined, error) {
	d.mu.Lock()
	p.rev = rev
	d.mu.Unlock()
	_, seen, err := d.readPlaces(ctx, []*place{p})
	if err != nil {
		return joined{}, err
	}
	s := seen[0]
	if s.err != nil {
		return joined{}, s.err
	}
	if s.state == driver.Gone {
		return joined{absent: true, state: driver.Gone}, nil
	}
	return joined{rev: rev, state: s.state, pred: s.pred,
		place: driver.Status{Ahead: s.ahead, Recheck: recheck(s.pred)}}, nil
}

// tryShared takes a place with a limit above 1 if enough units are free. It
// makes the key if the queue is empty. Otherwise it reads the queue, and makes
// the key only if no place was added since.
func (d *Driver) tryShared(ctx context.Context, p *place) (joined, error) {
	cmp := append(d.preconditions(p), empty(p.queue, after(p.queue)))
	then := []*pb.RequestOp{opPut(p.key, p.value, p.sess.id)}
	reasons := append(d.conflictReads(p), opGet(keysOnly(inOrder(p.queue))))
	for range maxTries {
		resp, err := d.send(ctx, p.sess, cmp, then, reasons)
		if err != nil {
			return joined{}, err
		}
		if resp.Succeeded {
			return joined{rev: resp.Header.Revision, state: driver.Held}, nil
		}
		r, err := d.refusal(p, resp)
		if err != nil || r.absent || r.again {
			return r, err
		}
		if r.rev != 0 {
			return d.find1(ctx, p, r.rev)
		}
		es, err := parseAll(p.queue, kvs(resp, len(reasons)-1), true)
		if err != nil {
			return r, err
		}
		if holding(append(es, entry{units: p.t.Units, limit: p.t.Limit})) <= len(es) {
			r.absent = true
			if r.first != nil {
				r.place.Holder = r.first.meta
			}
			return r, nil
		}
		cmp = append(d.preconditions(p), noneAfter(p.queue, resp.Header.Revision))
	}
	return joined{again: true}, nil
}

// forgetRefused forgets a place whose Join was refused, unless its key still has to
// be removed.
func (d *Driver) forgetRefused(p *place) {
	d.mu.Lock()
	if p.ownRev() == 0 {
		d.forgetLocked(p)
		p.t.DriverData = nil
	}
	d.mu.Unlock()
}

// verifySession asks the server whether a session still lives, after an answer that its
// lease does not exist.
func (d *Driver) verifySession(s *session) {
	d.mu.Lock()
	s.sent = time.Time{}
	if !s.over {
		d.requestKeepAliveLocked(s)
	}
	d.mu.Unlock()
}
