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
// An unnamed ticket's Join is one transaction, which makes the key only if
// there is no tombstone and no place of another limit, and reads who is first
// and whom to wait for. Where room has to be counted before the key may be
// made (wait=false, limit above 1) it reads first. What the ticket replaces
// leaves in requests of its own before.
func (d *Driver) Join(ctx context.Context, t *driver.Ticket, wait bool) (driver.Place, error) {
	if err := d.before(ctx); err != nil {
		return driver.Place{}, err
	}
	start := time.Now()
	d.mu.Lock()
	p := d.find(t)
	gone := p != nil && (p.over.Load() || p.late) || p == nil && d.graves.has(t.ID)
	known := !gone && p != nil && p.ownRev() != 0
	d.mu.Unlock()
	if gone {
		return driver.Place{State: driver.Gone}, nil
	}
	if old := t.Replaces; old != nil {
		if _, err := d.leave(ctx, driver.Ref{Ticket: old, State: driver.Held}); err != nil {
			return driver.Place{}, err
		}
	}
	if known {
		return d.joinAgain(ctx, p, wait, start)
	}
	s, err := d.session(ctx, t.TTL)
	if err != nil {
		return driver.Place{}, err
	}
	d.mu.Lock()
	if p = d.find(t); p == nil {
		p = d.enter(t, s)
	} else if p.sess.over {
		// An earlier Join of the ticket, which may have been carried out, was
		// in a session that is over: with it went whatever it made.
		d.forget(p)
		p = d.enter(t, s)
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
		// It had been asked for with wait=true, and its place was found.
		if _, err := d.leave(ctx, driver.Ref{Ticket: t, State: driver.Waiting}); err != nil {
			return driver.Place{}, err
		}
		return driver.Place{State: driver.Gone, Holder: a.Holder}, nil
	}
	return driver.Place{}, driver.Errorf(driver.NotDone, "the line changed %d times while it was read", maxTries)
}

// maxTries bounds how often one call begins anew because the line was changed
// between two of its requests.
const maxTries = 8

// joined is what came of one attempt.
type joined struct {
	state  driver.State
	rev    int64
	place  driver.Place // Ahead, Recheck, Holder
	first  *entry       // who holds
	pred   *entry       // whom it waits for
	again  bool         // the line has changed: once more
	absent bool         // the store has nothing of the ticket
}

// finishJoin settles what an attempt has left: the driver's memory and the
// promise of the lease.
func (d *Driver) finishJoin(ctx context.Context, p *place, r joined, err error, start time.Time) (driver.Place, error) {
	if err != nil {
		if noLease(err) {
			d.doubt(p.sess)
		}
		if driver.ClassOf(err) == driver.Refused {
			d.abandon(p)
		}
		return driver.Place{}, err
	}
	if r.absent { // wait=false found no room, or a tombstone forbids it
		d.mu.Lock()
		d.forget(p)
		if r.state != driver.Gone {
			p.t.Aux = nil
		}
		d.mu.Unlock()
		r.place.State = driver.Gone
		return r.place, nil
	}
	if uint64(r.rev) < p.t.Floor {
		if _, err := d.leave(ctx, driver.Ref{Ticket: p.t}); err != nil {
			return driver.Place{}, err
		}
		return driver.Place{}, driver.Errorf(driver.Refused, "tokens are the store's revisions: %d is below the floor of %d", r.rev, p.t.Floor)
	}
	d.mu.Lock()
	r.place.State = d.known(p, r.rev, r.state)
	if r.pred != nil && p.member == "" {
		p.before = r.pred.key
	}
	if r.pred != nil && r.pred.ours && r.place.Ahead == 1 && p.t.Limit == 1 {
		p.rival = r.pred.key
	}
	if r.state == driver.Waiting && r.pred != nil && !r.pred.ours {
		d.minder.look(p, 0) // nobody will wake it
	}
	p.due = time.Now().Add(driver.Keep(p.t.TTL))
	d.mu.Unlock()
	return d.answer(ctx, p, r.place, start)
}

// answer adds the promise of the lease to what is known of a place.
func (d *Driver) answer(ctx context.Context, p *place, a driver.Place, start time.Time) (driver.Place, error) {
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
		d.goneNow(p)
		return driver.Place{State: driver.Gone}, nil
	}
	if err != nil {
		return driver.Place{}, err
	}
	// Its time may have been over, or it may have left, since it was read: then
	// somebody else may hold by now. From here on its time begins anew, in the
	// same moment, so that nothing comes between.
	d.mu.Lock()
	gone := p.late || p.state == driver.Gone
	if !gone {
		p.due = time.Now().Add(driver.Keep(p.t.TTL))
	}
	d.mu.Unlock()
	if gone {
		return driver.Place{State: driver.Gone}, nil
	}
	a.Lease = min(lease, p.t.TTL)
	if a.State == driver.Held {
		a.Token = uint64(rev)
		a.Ahead, a.Recheck = 0, 0
	}
	return a, nil
}

// joinAgain finds the place of a ticket that has one.
func (d *Driver) joinAgain(ctx context.Context, p *place, wait bool, start time.Time) (driver.Place, error) {
	places, err := d.renew(ctx, []*place{p}, start)
	if err != nil {
		return driver.Place{}, err
	}
	a := places[0]
	if a.Err != nil {
		return driver.Place{}, a.Err
	}
	if a.State == driver.Waiting && !wait {
		if _, err := d.leave(ctx, driver.Ref{Ticket: p.t, State: driver.Waiting}); err != nil {
			return driver.Place{}, err
		}
		return driver.Place{State: driver.Gone, Holder: a.Holder}, nil
	}
	return a, nil
}

// joinOnce sends the transaction that makes the place.
func (d *Driver) joinOnce(ctx context.Context, p *place, wait bool) (joined, error) {
	cmp := d.guards(p)
	if !wait {
		cmp = append(cmp[1:2:2], empty(p.line, after(p.line)))
	}
	then := []*pb.RequestOp{
		opPut(p.key, p.value, p.sess.id),
		opGet(newest(p.line, 0, 2)),
		opGet(limit(inOrder(p.line), 1)),
	}
	if p.t.Limit > 1 {
		then = append(then, opGet(keysOnly(inOrder(p.line))))
	}
	resp, err := d.send(ctx, p.sess, cmp, then, d.reasons(p))
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
	case r.rev != 0: // an earlier request had made it
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

// send is txn, with a keep-alive beside it where the promise needs one.
func (d *Driver) send(ctx context.Context, s *session, cmp []*pb.Compare, then, otherwise []*pb.RequestOp) (*pb.TxnResponse, error) {
	d.mu.Lock()
	if !s.over && !s.fresh() {
		d.askBeat(s)
	}
	d.mu.Unlock()
	return d.txn(ctx, cmp, then, otherwise)
}

// placed reads where a new place stands.
func (d *Driver) placed(ctx context.Context, p *place, resp *pb.TxnResponse) (joined, error) {
	r := joined{rev: resp.Header.Revision, state: driver.Waiting}
	last, err := parseAll(p.line, kvs(resp, 1), false)
	var es []entry
	if err == nil {
		es, err = parseAll(p.line, kvs(resp, 2), false)
	}
	count := int(resp.Responses[1].GetResponseRange().Count)
	if err == nil && p.t.Limit > 1 {
		if es, err = parseAll(p.line, kvs(resp, 3), true); err == nil {
			count = len(es)
			if holding(es) == count {
				r.state = driver.Held
			}
			if f, err := parse(p.line, one(resp, 2), false); err == nil {
				es[0] = f
			}
		}
	} else if count == 1 {
		r.state = driver.Held
	}
	if err != nil { // something in the line is no lock: nothing of ours stays
		d.mu.Lock()
		d.known(p, r.rev, driver.Waiting)
		d.mu.Unlock()
		// Should this fail, the minder repeats it.
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

// recheck is when the store would drop a place at the latest, were its client
// dead since it was read. Of a foreign one it is not known; the predecessor's
// key is watched at once then.
func recheck(e *entry) time.Duration {
	if e == nil || !e.ours || e.ttl <= 0 {
		return 0
	}
	return leaseFor(e.ttl) + time.Second/2
}

// find1 reads where a place stands that was found in the way.
func (d *Driver) find1(ctx context.Context, p *place, rev int64) (joined, error) {
	d.mu.Lock()
	p.rev = rev
	d.mu.Unlock()
	_, seen, err := d.look(ctx, []*place{p})
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
		place: driver.Place{Ahead: s.ahead, Recheck: recheck(s.pred)}}, nil
}

// tryShared takes a place of a limit above 1 if there is room: it reads the
// line, and makes the key only if nobody has come since.
func (d *Driver) tryShared(ctx context.Context, p *place) (joined, error) {
	cmp := append(d.guards(p), empty(p.line, after(p.line)))
	then := []*pb.RequestOp{opPut(p.key, p.value, p.sess.id)}
	reasons := append(d.reasons(p), opGet(keysOnly(inOrder(p.line))))
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
		es, err := parseAll(p.line, kvs(resp, len(reasons)-1), true)
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
		cmp = append(d.guards(p), noneAfter(p.line, resp.Header.Revision))
	}
	return joined{again: true}, nil
}

// abandon forgets a place that was refused, unless it has still to be removed.
func (d *Driver) abandon(p *place) {
	d.mu.Lock()
	if p.ownRev() == 0 {
		d.forget(p)
		p.t.Aux = nil
	}
	d.mu.Unlock()
}

// doubt asks the server whether a session lives of which it has said that it
// does not.
func (d *Driver) doubt(s *session) {
	d.mu.Lock()
	s.sent = time.Time{}
	if !s.over {
		d.askBeat(s)
	}
	d.mu.Unlock()
}
