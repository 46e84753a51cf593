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
	p, phase := d.places.find(t)
	switch phase {
	case gone:
		return driver.Status{State: driver.Gone}, nil
	case leaving:
		return driver.Status{}, errLeaving
	case overdue:
		return d.overdue(ctx, p)
	}
	if t.Replaces != nil {
		if _, err := d.leave(ctx, driver.Ref{Ticket: t.Replaces}); err != nil {
			return driver.Status{}, err
		}
	}
	if phase == answered {
		return join{d.requests, p, wait, start}.again(ctx)
	}
	s, err := d.sessions.session(ctx, t.TTL)
	if err != nil {
		return driver.Status{}, err
	}
	if p = d.places.enter(t, s); p == nil {
		return driver.Status{State: driver.Gone}, nil
	}
	return join{d.requests, p, wait, start}.run(ctx)
}

// maxTries bounds how often one call starts again because the queue changed
// between two of its requests.
const maxTries = 8

// join is one Join of a ticket.
type join struct {
	*requests
	p     *place
	wait  bool
	start time.Time
}

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

// run takes a place for a ticket that has none, as far as is known.
func (j join) run(ctx context.Context) (driver.Status, error) {
	for range maxTries {
		var r joined
		var err error
		switch {
		case j.p.t.Owner != "":
			r, err = j.owner(ctx)
		case !j.wait && j.p.t.Limit > 1:
			r, err = j.shared(ctx)
		default:
			r, err = j.plain(ctx)
		}
		if err == nil && r.again {
			continue
		}
		a, err := j.finish(ctx, r, err)
		if err != nil {
			return driver.Status{}, err
		}
		return j.giveUpUnlessHeld(ctx, a)
	}
	return driver.Status{}, driver.Errorf(driver.NotDone, "gave up after %d attempts: the queue kept changing", maxTries)
}

// again finds and renews the place that the ticket already has.
func (j join) again(ctx context.Context) (driver.Status, error) {
	a := j.renew(ctx, []*place{j.p}, j.start)[0]
	if a.Err != nil {
		return driver.Status{}, a.Err
	}
	return j.giveUpUnlessHeld(ctx, a)
}

// giveUpUnlessHeld answers with the status of a place. With wait=false it removes a
// place that waits: an earlier Join of the ticket had wait=true.
func (j join) giveUpUnlessHeld(ctx context.Context, a driver.Status) (driver.Status, error) {
	if j.wait || a.State != driver.Waiting {
		return a, nil
	}
	if _, err := j.leave(ctx, driver.Ref{Ticket: j.p.t}); err != nil {
		return driver.Status{}, err
	}
	return driver.Status{State: driver.Gone, Holder: a.Holder}, nil
}

// finish records the result of an attempt in the driver, and completes the
// status with the promise of the lease.
func (j join) finish(ctx context.Context, r joined, err error) (driver.Status, error) {
	if err != nil {
		if noLease(err) {
			j.p.sess.verify()
		}
		// If there may be a place, its key still has to be removed.
		if now := j.places.snapshot(j.p); driver.ClassOf(err) == driver.Refused && now.ownRev() == 0 {
			j.places.forget(j.p, true)
		}
		return driver.Status{}, err
	}
	if r.absent { // wait=false found too few free units, or a tombstone forbids the place
		j.places.forget(j.p, r.state != driver.Gone)
		return driver.Status{State: driver.Gone, Holder: r.place.Holder}, nil
	}
	if uint64(r.rev) < j.p.t.MinToken {
		if _, err := j.leave(ctx, driver.Ref{Ticket: j.p.t}); err != nil {
			return driver.Status{}, err
		}
		return driver.Status{}, driver.Errorf(driver.Refused, "tokens are the store's revisions: %d is below the floor of %d", r.rev, j.p.t.MinToken)
	}
	r.place.State = j.places.onPlaced(j.p, r)
	return j.answer(ctx, j.p, r.place, j.start)
}

// request sends a transaction, and a keep-alive beside it if the promise needs one.
func (j join) request(ctx context.Context, r *pb.TxnRequest) (*pb.TxnResponse, error) {
	j.p.sess.refresh(time.Now())
	return j.send(ctx, r)
}

// plain sends the transaction that makes the place.
func (j join) plain(ctx context.Context) (joined, error) {
	resp, err := j.request(ctx, j.p.joinTxn(j.wait))
	if err != nil {
		return joined{}, err
	}
	if resp.Succeeded {
		r, err := j.p.readJoin(resp)
		if err != nil { // a key in the queue is not a lock's: remove our place
			j.places.onPlaced(j.p, joined{rev: r.rev, state: driver.Waiting})
			// If this fails, the janitor repeats it.
			_, _ = j.leave(ctx, driver.Ref{Ticket: j.p.t})
			err = fmt.Errorf("line %q: %w", j.p.t.Name, err)
		}
		return r, err
	}
	r, done, err := j.conflict(ctx, resp)
	switch {
	case err != nil || done:
		return r, err
	case j.wait:
		return joined{again: true}, nil
	}
	return r.refused(), nil
}

// shared takes a place with a limit above 1 if enough units are free. It
// makes the key if the queue is empty. Otherwise it reads the queue, and makes
// the key only if no place was added since.
func (j join) shared(ctx context.Context) (joined, error) {
	queue := j.p.queue
	unchanged := empty(queue, after(queue))
	for range maxTries {
		resp, err := j.request(ctx, &pb.TxnRequest{
			Compare: append(j.p.preconditions(), unchanged),
			Success: []*pb.RequestOp{opPut(j.p.key, j.p.value, j.p.sess.id)},
			Failure: append(j.p.conflictReads(), opGet(keysOnly(inOrder(queue)))),
		})
		if err != nil {
			return joined{}, err
		}
		if resp.Succeeded {
			return joined{rev: resp.Header.Revision, state: driver.Held}, nil
		}
		r, done, err := j.conflict(ctx, resp)
		if err != nil || done {
			return r, err
		}
		es, err := parseAll(queue, kvs(resp, len(resp.Responses)-1), true)
		if err != nil {
			return r, err
		}
		if holding(append(es, entry{units: j.p.t.Units, limit: j.p.t.Limit})) <= len(es) {
			return r.refused(), nil
		}
		unchanged = noneAfter(queue, resp.Header.Revision)
	}
	return joined{again: true}, nil
}

// refused returns the result of an attempt with wait=false that found too few free
// units.
func (r joined) refused() joined {
	r.absent = true
	if r.first != nil {
		r.place.Holder = r.first.meta
	}
	return r
}

// conflict returns the reason why a precondition of a new place failed. If no reason
// holds any longer, it is not done and returns no error, and the caller goes on.
func (j join) conflict(ctx context.Context, resp *pb.TxnResponse) (r joined, done bool, err error) {
	r, err = j.p.readConflict(resp)
	switch {
	case err != nil:
		return r, false, err
	case r.absent:
		j.places.addTombstone(j.p.t.ID)
	case r.again: // the key belongs to another ticket, and the driver has not seen its end
		j.places.useLongKey(j.p)
	case r.rev == 0:
		return r, false, nil
	default: // an earlier request made the place
		j.places.setRev(j.p, r.rev)
		_, seen, err := j.readPlaces(ctx, []*place{j.p})
		if err != nil {
			return joined{}, false, err
		}
		s := seen[0]
		r = joined{rev: r.rev, state: s.state, absent: s.state == driver.Gone, pred: s.pred,
			place: driver.Status{Ahead: s.ahead, Recheck: recheck(s.pred)}}
		return r, true, s.err
	}
	return r, true, nil
}
