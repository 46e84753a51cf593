package etcdlock

import (
	"context"
	"maps"
	"slices"

	"github.com/holdfast-go/holdfast/driver"
)

// Leave implements [driver.Driver]. Tickets of one queue leave one after the
// other, in the order of refs; queues do not wait for each other.
func (d *Driver) Leave(ctx context.Context, refs []driver.Ref) ([]driver.Status, error) {
	if err := d.life.checkOpen(ctx); err != nil {
		return nil, err
	}
	d.places.giveUp(refs)
	answers := d.leaveAll(ctx, refs)
	return answers, failed(answers)
}

// leaveAll is the part of Leave that also serves tickets that the core has not
// given up.
func (r *requests) leaveAll(ctx context.Context, refs []driver.Ref) []driver.Status {
	answers := make([]driver.Status, len(refs))
	queues := make(map[string][]int)
	for i, ref := range refs {
		queues[ref.Name] = append(queues[ref.Name], i)
	}
	byQueue := slices.Collect(maps.Values(queues))
	inParallel(len(byQueue), 16, func(k int) {
		for _, i := range byQueue[k] {
			s, err := r.leave(ctx, refs[i])
			answers[i] = driver.Status{State: s, Err: err}
		}
	})
	return answers
}

// leave gives up the place of one ticket.
func (r *requests) leave(ctx context.Context, ref driver.Ref) (driver.State, error) {
	p, buried := r.places.mustLeave(ref.Ticket)
	if p == nil {
		if !ref.JoinPending || buried {
			return driver.Gone, nil
		}
		return driver.Gone, r.tombstones.add(ctx, ref.ID)
	}
	if was := r.places.snapshot(p); ref.JoinPending || was.ownRev() == 0 {
		// The tombstone comes first, so that no Join can take effect after the
		// deletion.
		if err := r.tombstones.add(ctx, ref.ID); err != nil {
			return 0, p.sess.retireIfRefused(err)
		}
	}
	var s driver.State
	var err error
	switch {
	case p.t.Owner != "":
		s, err = r.leaveOwner(ctx, p)
	case p.t.Limit == 1 && r.places.snapshot(p).rev != 0:
		s, err = r.leaveMutex(ctx, p)
	default:
		s, err = r.leavePlainly(ctx, p, false)
	}
	if noLease(err) { // the next waiter's lease is over, and its place with it
		s, err = r.leavePlainly(ctx, p, false)
	}
	if full(err) && p.t.Owner == "" {
		s, err = r.leavePlainly(ctx, p, true)
	}
	if err != nil {
		return 0, p.sess.retireIfRefused(err)
	}
	r.places.forget(p, false)
	return s, nil
}

// leaveMutex releases the mutex of a holder, or ends a wait.
//
// A holder deletes its key and writes to the wake key of the next waiter in one
// transaction, which depends on the next waiter's key. So the hand-off is one
// step, and notifies one client. The release before has named the next waiter,
// or leaveMutex reads it: no place can come between, but a place can vanish. A
// holder that never waited assumes that it is alone, and its transaction
// depends on that.
func (r *requests) leaveMutex(ctx context.Context, p *place) (driver.State, error) {
	was := r.places.snapshot(p)
	if was.State != driver.Held {
		return r.leavePlainly(ctx, p, false)
	}
	txn, next := p.leavePairTxn(was.onlyPredecessor), was.next
	if len(next) > 0 || txn == nil {
		if len(next) == 0 && was.waited {
			read := limit(inOrder(p.queue), hints+1)
			read.Serializable = true // a hint: the transaction detects stale data
			resp, err := r.read(ctx, read)
			if err != nil {
				return 0, err
			}
			next = p.successors(resp)
		}
		txn = p.handOffTxn(next)
	}
	for range maxTries {
		resp, err := r.send(ctx, txn)
		if err != nil {
			return 0, err
		}
		if resp.Succeeded {
			return driver.Held, nil
		}
		if kv := one(resp, 0); kv == nil || kv.CreateRevision != p.rev {
			return driver.Gone, nil
		}
		txn = p.handOffTxn(p.successors(resp.Responses[1].GetResponseRange()))
	}
	return r.leavePlainly(ctx, p, false)
}

// leavePlainly deletes a ticket's key, reads the queue as it is at that
// revision, and notifies the new holders in a second request. With quiet it
// notifies none: a full store deletes keys but accepts no wake-ups, and waiters
// notice by the watch on their predecessors.
func (r *requests) leavePlainly(ctx context.Context, p *place, quiet bool) (driver.State, error) {
	was := r.places.snapshot(p)
	resp, err := r.send(ctx, p.leaveTxn(&was))
	if err != nil {
		return 0, err
	}
	if !resp.Succeeded {
		return driver.Gone, nil
	}
	es, err := parseAll(p.queue, kvs(resp, 0), p.t.Limit > 1)
	if err != nil {
		return max(was.State, driver.Waiting), nil
	}
	state, woken := departure(es, was.key)
	if state == driver.Waiting && was.State == driver.Held {
		state = driver.Held
	}
	if !quiet {
		r.wake(ctx, p.queue, woken)
	}
	return state, nil
}

// wake notifies places that they hold. It sends one request, in which each
// wake-up depends on the place's key. A failure is not an error: waiters watch
// their predecessors, and read their own status.
func (r *requests) wake(ctx context.Context, queue string, es []entry) {
	for ops := r.keys.wakeOps(queue, es); len(ops) > 0; {
		n := min(len(ops), r.txnLimit.ops())
		if _, err := r.txn(ctx, nil, ops[:n], nil); !r.txnLimit.refused(err, n) {
			ops = ops[n:]
		}
	}
}
