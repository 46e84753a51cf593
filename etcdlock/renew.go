package etcdlock

import (
	"cmp"
	"context"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// Renew implements [driver.Driver]. It sends one keep-alive for each session,
// unless one was just answered, and reads the places that it has to, up to 120
// reads to a request. A held place whose own key is watched needs no read: its
// lease is confirmed, and the watch would have reported a deletion of the key.
func (d *Driver) Renew(ctx context.Context, refs []driver.Ref) ([]driver.Status, error) {
	if err := d.life.checkOpen(ctx); err != nil {
		return nil, err
	}
	start := time.Now()
	answers := make([]driver.Status, len(refs))
	var ps []*place
	var at []int
	var late []driver.Ref
	var lateAt []int
	for i, ref := range refs {
		switch p, phase := d.places.find(ref.Ticket); phase {
		case unknown, gone, leaving:
			answers[i].State = driver.Gone
		case overdue:
			late, lateAt = append(late, ref), append(lateAt, i)
		case unanswered:
			answers[i].Err = driver.Errorf(driver.Unknown, "the ticket's Join was not answered")
		case answered:
			ps, at = append(ps, p), append(at, i)
		}
	}
	// Tickets whose time is over are Gone once the store has confirmed it.
	for i, left := range d.leaveAll(ctx, late) {
		if answers[lateAt[i]].Err = left.Err; left.Err == nil {
			answers[lateAt[i]].State = driver.Gone
		}
	}
	for i, a := range d.renew(ctx, ps, start) {
		answers[at[i]] = a
	}
	return answers, failed(answers)
}

// renew renews places that the driver knows.
func (r *requests) renew(ctx context.Context, ps []*place, start time.Time) []driver.Status {
	answers := make([]driver.Status, len(ps))
	var read []*place
	var at []int
	for i, p := range ps {
		answers[i].State = driver.Held
		now := r.places.snapshot(p)
		p.sess.refresh(start)
		if now.owner != nil {
			now.owner.refresh(start)
		}
		if now.State != driver.Held || now.watch == nil || now.watch.key != now.ownKey() {
			read, at = append(read, p), append(at, i)
		}
	}
	for len(read) > 0 {
		n, seen, err := r.readPlaces(ctx, read)
		for i := range n {
			switch {
			case err != nil:
				answers[at[i]].Err = err
			case seen[i].err != nil:
				answers[at[i]].Err = seen[i].err
			default:
				s := seen[i]
				answers[at[i]] = driver.Status{State: s.state, Ahead: s.ahead, Recheck: recheck(s.pred)}
			}
		}
		read, at = read[n:], at[n:]
	}
	for i, p := range ps {
		err := answers[i].Err
		switch {
		case err != nil:
		case answers[i].State == driver.Gone:
			r.places.forget(p, false)
			continue
		default:
			answers[i], err = r.answer(ctx, p, answers[i], start)
		}
		if err != nil {
			answers[i] = driver.Status{Err: err}
		}
	}
	return answers
}

// maxReads is the number of reads in one request: a server takes 128 operations
// in a transaction, unless configured otherwise. A place that holds costs one
// read, one that waits two or three, and one of a named owner one more. If
// servers take fewer, cluster.txnLimit has their limit.
const maxReads = 120

// deepQueue is the number of places before its own from which on a waiting mutex reads
// the place directly before it by its key. As long as that is there, nothing has changed.
// Else it reads the queue, which a server sorts as a whole for each such read.
const deepQueue = 100

// placeRead is the status of a place, as one request read it.
type placeRead struct {
	state driver.State
	ahead int // -1 if not known
	pred  *entry
	rev   int64 // of the store, at the time of the read
	news  bool  // the driver did not know that the place holds
	moved bool  // the place before it is no longer there: the queue has to be read
	err   error // a key before it in its queue is not a lock's; other places are not affected
}

// readPlaces reads the status of places in one request, and records changes without
// notifying the core. It takes as many of the places as fit, at least one, and
// returns their number, also with an error.
func (r *requests) readPlaces(ctx context.Context, ps []*place) (int, []placeRead, error) {
	ops, plans := r.places.planReads(ps, r.txnLimit.ops())
	resp, err := r.txn(ctx, nil, ops, nil)
	if r.txnLimit.refused(err, len(ops)) {
		return r.readPlaces(ctx, ps)
	}
	if err != nil {
		return len(plans), nil, err
	}
	all := make([]placeRead, len(plans))
	var moved []*place
	var at []int
	for i, plan := range plans {
		all[i] = ps[i].read(plan, resp)
		r.places.onPlaceRead(ps[i], plan, resp, &all[i])
		if all[i].moved {
			moved, at = append(moved, ps[i]), append(at, i)
		}
	}
	for len(moved) > 0 {
		n, again, err := r.readPlaces(ctx, moved)
		if err != nil {
			return len(plans), nil, err
		}
		for i := range n {
			all[at[i]] = again[i]
		}
		moved, at = moved[n:], at[n:]
	}
	return len(plans), all, nil
}

// readPlan has the indices of a place's reads in a request; -1 for none.
type readPlan struct {
	own, place, pred, ahead int
	before                  *entry // the place that pred reads; nil if it reads the newest before its own
}

// planReads returns the reads of as many of the places as fit into one request.
func (ps *places) planReads(all []*place, most int) (ops []*pb.RequestOp, plans []readPlan) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for _, p := range all {
		reads, plan := p.readsLocked(len(ops))
		if len(plans) > 0 && len(ops)+len(reads) > most {
			break
		}
		ops, plans = append(ops, reads...), append(plans, plan)
	}
	return ops, plans
}

// readsLocked returns the reads for the status of the place, the first of which gets
// index n.
func (p *place) readsLocked(n int) (ops []*pb.RequestOp, plan readPlan) {
	add := func(r *pb.RangeRequest) int {
		ops = append(ops, opGet(r))
		return n + len(ops) - 1
	}
	plan = readPlan{own: add(getKey(p.ownKey())), place: -1, pred: -1, ahead: -1}
	if p.member != "" {
		plan.place = add(getKey(p.key))
	}
	switch {
	case p.State == driver.Held || p.rev == 0:
	case p.before != nil:
		plan.pred, plan.before = add(getKey(p.before.key)), p.before
	default:
		plan.pred = add(newest(p.queue, p.rev, 1))
		if p.t.Limit > 1 {
			r := keysOnly(inOrder(p.queue))
			r.MaxCreateRevision = p.rev
			plan.ahead = add(r)
		}
	}
	return ops, plan
}

// read returns the status of a place from the places ahead of it, as one request read
// them. Whether the place is there is not known yet.
func (p *place) read(plan readPlan, resp *pb.TxnResponse) placeRead {
	s := placeRead{state: driver.Held, ahead: -1, rev: resp.Header.Revision}
	if plan.before != nil {
		kv := one(resp, plan.pred)
		s.state, s.pred, s.moved = driver.Waiting, plan.before, kv == nil || kv.CreateRevision != plan.before.rev
		return s
	}
	if plan.pred < 0 || one(resp, plan.pred) == nil {
		return s
	}
	if plan.ahead >= 0 {
		es, err := parseAll(p.queue, kvs(resp, plan.ahead), true)
		if err == nil && holding(es) == len(es) {
			return s
		}
		s.err, s.ahead = err, len(es)-1
	}
	e, err := parse(p.queue, one(resp, plan.pred), false)
	s.state, s.pred, s.err = driver.Waiting, &e, cmp.Or(s.err, err)
	return s
}

// onPlaceRead completes the status of a place, and records that it holds if the driver
// did not know that.
func (ps *places) onPlaceRead(p *place, plan readPlan, resp *pb.TxnResponse, s *placeRead) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	own := one(resp, plan.own)
	there := own != nil && own.CreateRevision == p.ownRev() && p.State != driver.Gone
	if there && plan.place >= 0 {
		kv := one(resp, plan.place)
		there = kv != nil && kv.CreateRevision == p.rev
	}
	switch {
	case !there:
		*s = placeRead{state: driver.Gone, ahead: -1, rev: s.rev}
	case p.State == driver.Held:
		*s = placeRead{state: driver.Held, ahead: -1, rev: s.rev}
	case s.moved:
		p.before = nil
	case plan.pred >= 0 && s.err == nil && s.state == driver.Held:
		s.news = ps.onHeldLocked(p, nil)
	case p.deep && s.err == nil && s.state == driver.Waiting:
		p.before = s.pred
	}
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
