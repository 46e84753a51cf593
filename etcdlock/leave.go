package etcdlock

import (
	"context"
	"strings"
	"sync"

	"github.com/holdfast-go/holdfast/driver"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// Leave implements [driver.Driver]. Tickets of one queue leave one after the
// other, in the order of refs; queues do not wait for each other.
func (d *Driver) Leave(ctx context.Context, refs []driver.Ref) ([]driver.Status, error) {
	if err := d.life.checkOpen(ctx); err != nil {
		return nil, err
	}
	d.mu.Lock()
	for _, ref := range refs {
		if p := d.findLocked(ref.Ticket); p != nil {
			p.left = true
		}
	}
	d.mu.Unlock()
	answers := d.leaveAll(ctx, refs)
	return answers, failed(answers)
}

// leaveAll is the part of Leave that also serves tickets that the core has not
// given up.
func (d *Driver) leaveAll(ctx context.Context, refs []driver.Ref) []driver.Status {
	answers := make([]driver.Status, len(refs))
	one := func(i int) {
		s, err := d.leave(ctx, refs[i])
		answers[i] = driver.Status{State: s, Err: err}
	}
	if len(refs) == 1 {
		one(0)
		return answers
	}
	queues := make(map[string][]int)
	for i, ref := range refs {
		queues[ref.Name] = append(queues[ref.Name], i)
	}
	const callers = 16
	room := make(chan struct{}, callers)
	var wg sync.WaitGroup
	for _, is := range queues {
		room <- struct{}{}
		wg.Go(func() {
			defer func() { <-room }()
			for _, i := range is {
				one(i)
			}
		})
	}
	wg.Wait()
	return answers
}

// leave gives up the place of one ticket.
func (d *Driver) leave(ctx context.Context, ref driver.Ref) (driver.State, error) {
	d.mu.Lock()
	p := d.findLocked(ref.Ticket)
	if p == nil || p.over.Load() {
		buried := d.tombstones.Has(ref.ID)
		d.mu.Unlock()
		if !ref.JoinPending || buried {
			return driver.Gone, nil
		}
		return driver.Gone, d.addTombstone(ctx, ref.ID)
	}
	p.mustLeave = true // from now on no answer reports a place
	unsure, rev := ref.JoinPending || p.ownRev() == 0, p.rev
	d.mu.Unlock()
	if unsure {
		// The tombstone comes first, so that no Join can take effect after the
		// deletion.
		if err := d.addTombstone(ctx, ref.ID); err != nil {
			return 0, d.retireIfRefused(p.sess, err)
		}
	}
	var s driver.State
	var err error
	switch {
	case p.t.Owner != "":
		s, err = d.leaveOwner(ctx, p)
	case p.t.Limit == 1 && rev != 0:
		s, err = d.leaveMutex(ctx, p)
	default:
		s, err = d.leavePlainly(ctx, p, false)
	}
	if noLease(err) { // the next waiter's lease is over, and its place with it
		s, err = d.leavePlainly(ctx, p, false)
	}
	if full(err) && p.t.Owner == "" {
		s, err = d.leavePlainly(ctx, p, true)
	}
	if err != nil {
		return 0, d.retireIfRefused(p.sess, err)
	}
	d.mu.Lock()
	d.forgetLocked(p)
	if unsure {
		d.tombstones.Add(ref.ID)
	}
	d.mu.Unlock()
	return s, nil
}

// addTombstone makes a tombstone at the store and in the driver.
func (d *Driver) addTombstone(ctx context.Context, id string) error {
	if err := d.stored.add(ctx, id); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.tombstones.Add(id)
	return nil
}

// hints is the number of waiters that one request reads, and that one release
// passes on to the next.
const hints = 8

// leaveMutex releases the mutex of a holder, or ends a wait.
//
// A holder deletes its key and writes to the wake key of the next waiter in one
// transaction, which depends on the next waiter's key. So the hand-off is one
// step, and notifies one client. The release before has named the next waiter,
// or leaveMutex reads it: no place can come between, but a place can vanish. A
// holder that never waited assumes that it is alone, and its transaction
// depends on that.
func (d *Driver) leaveMutex(ctx context.Context, p *place) (driver.State, error) {
	d.mu.Lock()
	next, waited, held, rival := p.next, p.waited, p.state == driver.Held, p.onlyPredecessor
	d.mu.Unlock()
	if !held {
		return d.leavePlainly(ctx, p, false)
	}
	if len(next) == 0 && rival != "" && rival != p.key {
		resp, err := d.leavePair(ctx, p, rival)
		if err != nil {
			return 0, err
		}
		if resp.Succeeded {
			return driver.Held, nil
		}
		if kv := one(resp, 0); kv == nil || kv.CreateRevision != p.rev {
			return driver.Gone, nil
		}
		if next, err = successors(p, resp.Responses[1].GetResponseRange()); err != nil {
			return 0, err
		}
	} else if len(next) == 0 && waited {
		r := limit(inOrder(p.queue), hints+1)
		r.Serializable = true // a hint: the transaction detects stale data
		resp, err := d.read(ctx, r)
		if err != nil {
			return 0, err
		}
		if next, err = successors(p, resp); err != nil {
			return 0, err
		}
	}
	for range maxTries {
		cmp := []*pb.Compare{createdIs(p.key, p.rev)}
		then := []*pb.RequestOp{opDelete(p.key)}
		if len(next) == 0 {
			cmp = append(cmp, noneAfter(p.queue, p.rev))
		} else {
			n := next[0]
			key := p.queue + n.suffix
			cmp = append(cmp, createdIs(key, n.rev))
			if !n.foreign {
				wake, lease := d.wakeOf(n.suffix)
				then = append(then, opPut(wake, message{key: key, rev: n.rev, next: next[1:]}.encode(), lease))
			}
		}
		resp, err := d.txn(ctx, cmp, then, []*pb.RequestOp{opGet(getKey(p.key)), opGet(limit(inOrder(p.queue), hints+1))})
		if err != nil {
			return 0, err
		}
		if resp.Succeeded {
			return driver.Held, nil
		}
		if kv := one(resp, 0); kv == nil || kv.CreateRevision != p.rev {
			return driver.Gone, nil
		}
		if next, err = successors(p, resp.Responses[1].GetResponseRange()); err != nil {
			return 0, err
		}
	}
	return d.leavePlainly(ctx, p, false)
}

// leavePair releases a mutex that two clients pass to each other. The other
// client's key is the same every time, whether it is waiting again or not. As
// long as the queue has no third place, one transaction deletes the holder's
// key and notifies the other client if its key exists.
func (d *Driver) leavePair(ctx context.Context, p *place, rival string) (*pb.TxnResponse, error) {
	a, b := min(p.key, rival), max(p.key, rival)
	cmp := []*pb.Compare{createdIs(p.key, p.rev),
		empty(p.queue, a), empty(a+"\x00", b), empty(b+"\x00", after(p.queue))}
	wake, lease := d.wakeOf(rival[len(p.queue):])
	there := absent(rival)
	there.Result = pb.Compare_GREATER
	then := []*pb.RequestOp{opDelete(p.key),
		opTxn([]*pb.Compare{there}, []*pb.RequestOp{opPut(wake, message{key: rival}.encode(), lease)}, nil)}
	return d.txn(ctx, cmp, then, []*pb.RequestOp{opGet(getKey(p.key)), opGet(limit(inOrder(p.queue), hints+1))})
}

// successors returns the waiters behind p, in order, from a read of the queue: all
// those that a release may name as next.
func successors(p *place, r *pb.RangeResponse) ([]successor, error) {
	es, err := parseAll(p.queue, r.Kvs, false)
	if err != nil {
		// A key in the queue is not a lock's. It must not keep p from leaving.
		es = nil
		for _, kv := range r.Kvs {
			if e, err := parse(p.queue, kv, false); err == nil {
				es = append(es, e)
			}
		}
	}
	var next []successor
	for _, e := range es {
		if e.rev <= p.rev {
			continue
		}
		next = append(next, successor{suffix: strings.TrimPrefix(e.key, p.queue), rev: e.rev, foreign: !e.ours})
		if !e.ours || len(next) == hints {
			break
		}
	}
	return next, nil
}

// wakeOf returns the wake key of the client that has a place, and its lease.
func (d *Driver) wakeOf(suffix string) (key string, lease int64) {
	h, id := leaseOf(suffix)
	return d.keys.wake(h), id
}

// leavePlainly deletes a ticket's key, reads the queue as it is at that
// revision, and notifies the new holders in a second request. With quiet it
// notifies none: a full store deletes keys but accepts no wake-ups, and waiters
// notice by the watch on their predecessors.
func (d *Driver) leavePlainly(ctx context.Context, p *place, quiet bool) (driver.State, error) {
	d.mu.Lock()
	mine := createdIs(p.key, p.rev)
	if p.rev == 0 {
		mine = valueIs(p.key, p.value)
	}
	believed := p.state
	d.mu.Unlock()
	r := inOrder(p.queue)
	if p.t.Limit == 1 {
		r = limit(r, hints+2)
	} else {
		r = keysOnly(r)
	}
	resp, err := d.txn(ctx, []*pb.Compare{mine}, []*pb.RequestOp{opGet(r), opDelete(p.key)}, nil)
	if err != nil {
		return 0, err
	}
	if !resp.Succeeded {
		return driver.Gone, nil
	}
	es, err := parseAll(p.queue, kvs(resp, 0), p.t.Limit > 1)
	if err != nil {
		return max(believed, driver.Waiting), nil
	}
	state, woken := departure(es, p.key)
	if state == driver.Waiting && believed == driver.Held {
		state = driver.Held
	}
	if !quiet {
		d.wake(ctx, p.queue, woken)
	}
	return state, nil
}

// departure reports whether the place with that key held, in a queue as it was
// before the place left, and returns the places that hold only since then.
func departure(es []entry, key string) (state driver.State, woken []entry) {
	before := holding(es)
	state = driver.Waiting
	rest := make([]entry, 0, len(es))
	heldBefore := make(map[string]bool, before)
	for i, e := range es {
		if e.key == key {
			if i < before {
				state = driver.Held
			}
			continue
		}
		if i < before {
			heldBefore[e.key] = true
		}
		rest = append(rest, e)
	}
	for _, e := range rest[:holding(rest)] {
		if !heldBefore[e.key] {
			woken = append(woken, e)
		}
	}
	return state, woken
}

// wake notifies places that they hold. It sends one request, in which each
// wake-up depends on the place's key. A failure is not an error: waiters watch
// their predecessors, and read their own status.
func (d *Driver) wake(ctx context.Context, queue string, es []entry) {
	type letter struct {
		cmp   []*pb.Compare
		text  []string
		lease int64
	}
	byKey := make(map[string]*letter)
	var order []string
	for _, e := range es {
		suffix := strings.TrimPrefix(e.key, queue)
		// A place with a record is ours. A key read without its value is ours
		// if it has the long form.
		if !e.ours && e.limit == 1 && !strings.Contains(suffix, "-") {
			continue
		}
		key, lease := d.wakeOf(suffix)
		l := byKey[key]
		if l == nil {
			if len(order) == driver.MaxSteps {
				break
			}
			l = &letter{lease: lease}
			byKey[key] = l
			order = append(order, key)
		}
		l.text = append(l.text, message{key: e.key, rev: e.rev}.encode())
		if len(l.cmp) == 0 {
			l.cmp = append(l.cmp, createdIs(e.key, e.rev))
		}
	}
	if len(order) == 0 {
		return
	}
	ops := make([]*pb.RequestOp, len(order))
	for i, key := range order {
		l := byKey[key]
		ops[i] = opTxn(l.cmp, []*pb.RequestOp{opPut(key, strings.Join(l.text, "\n"), l.lease)}, nil)
	}
	for len(ops) > 0 {
		n := min(len(ops), d.txnLimit.ops())
		if _, err := d.txn(ctx, nil, ops[:n], nil); d.txnLimit.refused(err, n) {
			continue
		}
		ops = ops[n:]
	}
}
