package etcdlock

import (
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
	d.mu.Lock()
	for i, ref := range refs {
		p := d.findLocked(ref.Ticket)
		if p == nil || p.over.Load() || p.left {
			answers[i].State = driver.Gone
			continue
		}
		if p.mustLeave {
			late, lateAt = append(late, ref), append(lateAt, i)
			continue
		}
		if p.ownRev() == 0 {
			answers[i].Err = driver.Errorf(driver.Unknown, "the ticket's Join was not answered")
			continue
		}
		ps, at = append(ps, p), append(at, i)
	}
	d.mu.Unlock()
	// Tickets whose time is over are Gone once the store has confirmed it.
	for i, left := range d.leaveAll(ctx, late) {
		if answers[lateAt[i]].Err = left.Err; left.Err == nil {
			answers[lateAt[i]].State = driver.Gone
		}
	}
	got, err := d.renew(ctx, ps, start)
	for i := range ps {
		if err != nil {
			answers[at[i]] = driver.Status{Err: err}
		} else {
			answers[at[i]] = got[i]
		}
	}
	return answers, failed(answers)
}

// failed returns the first error if every status has one: then the whole call
// has failed.
func failed(places []driver.Status) error {
	for _, p := range places {
		if p.Err == nil {
			return nil
		}
	}
	if len(places) == 0 {
		return nil
	}
	return places[0].Err
}

// renew renews places that the driver knows.
func (d *Driver) renew(ctx context.Context, ps []*place, start time.Time) ([]driver.Status, error) {
	answers := make([]driver.Status, len(ps))
	var read []*place
	var at []int
	d.mu.Lock()
	for i, p := range ps {
		for _, s := range []*session{p.sess, p.owner} {
			if s != nil && !s.over && !s.fresh(start) {
				d.requestKeepAliveLocked(s)
			}
		}
		if p.state == driver.Held && p.watch != nil && p.watch.key == p.ownKey() {
			answers[i].State = driver.Held
		} else {
			read, at = append(read, p), append(at, i)
		}
	}
	d.mu.Unlock()
	for len(read) > 0 {
		n, seen, err := d.readPlaces(ctx, read)
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
		if answers[i].Err != nil {
			continue
		}
		if answers[i].State == driver.Gone {
			d.mu.Lock()
			d.forgetLocked(p)
			d.mu.Unlock()
			continue
		}
		a, err := d.answer(ctx, p, answers[i], start)
		if err != nil {
			a = driver.Status{Err: err}
		}
		answers[i] = a
	}
	return answers, nil
}

// maxReads is the number of reads in one request: a server takes 128 operations
// in a transaction, unless configured otherwise. A place that holds costs one
// read, one that waits two or three, and one of a named owner one more. If
// servers take fewer, Driver.txnLimit has their limit.
const maxReads = 120

// placeRead is the status of a place, as one request read it.
type placeRead struct {
	state driver.State
	ahead int // -1 if not known
	pred  *entry
	rev   int64 // of the store, at the time of the read
	news  bool  // the driver did not know that the place holds
	err   error // a key before it in its queue is not a lock's; other places are not affected
}

// readPlaces reads the status of places in one request, and records changes without
// notifying the core. It takes as many of the places as fit, at least one, and
// returns their number, also with an error.
func (d *Driver) readPlaces(ctx context.Context, ps []*place) (int, []placeRead, error) {
	type view struct{ own, place, pred, ahead int }
	var ops []*pb.RequestOp
	add := func(r *pb.RangeRequest) int {
		ops = append(ops, opGet(r))
		return len(ops) - 1
	}
	var views []view
	most := d.txnLimit.ops()
	d.mu.Lock()
	for _, p := range ps {
		if len(ops)+p.reads() > most {
			break
		}
		v := view{-1, -1, -1, -1}
		v.own = add(getKey(p.ownKey()))
		if p.member != "" {
			v.place = add(getKey(p.key))
		}
		if p.state != driver.Held && p.rev > 0 {
			v.pred = add(newest(p.queue, p.rev, 1))
			if p.t.Limit > 1 {
				r := keysOnly(inOrder(p.queue))
				r.MaxCreateRevision = p.rev
				v.ahead = add(r)
			}
		}
		views = append(views, v)
	}
	d.mu.Unlock()
	ps = ps[:len(views)]
	resp, err := d.txn(ctx, nil, ops, nil)
	if d.txnLimit.refused(err, len(ops)) {
		return d.readPlaces(ctx, ps)
	}
	if err != nil {
		return len(ps), nil, err
	}
	all := make([]placeRead, len(ps))
	for i, p := range ps {
		v := views[i]
		s := placeRead{state: driver.Gone, ahead: -1, rev: resp.Header.Revision}
		own := one(resp, v.own)
		d.mu.Lock()
		there := own != nil && own.CreateRevision == p.ownRev() && p.state != driver.Gone
		if there && v.place >= 0 {
			kv := one(resp, v.place)
			there = kv != nil && kv.CreateRevision == p.rev
		}
		state := p.state
		d.mu.Unlock()
		switch {
		case !there:
		case state == driver.Held || v.pred < 0:
			s.state = driver.Held
		default:
			if s.state, s.pred, s.err = d.stateOf(p, resp, v.pred, v.ahead); s.err != nil {
				break
			}
			if v.ahead >= 0 {
				s.ahead = len(kvs(resp, v.ahead)) - 1
			}
			if s.state == driver.Held {
				d.mu.Lock()
				s.news = d.setHeldLocked(p, nil)
				d.mu.Unlock()
			}
		}
		all[i] = s
	}
	return len(ps), all, nil
}

// reads returns the number of reads for the status of the place. Driver.mu is
// held.
func (p *place) reads() int {
	n := 1
	if p.member != "" {
		n++
	}
	if p.state != driver.Held && p.rev > 0 {
		n++
		if p.t.Limit > 1 {
			n++
		}
	}
	return n
}

// stateOf returns the state of a place, from the places ahead of it, and the
// predecessor of a waiting one.
func (d *Driver) stateOf(p *place, resp *pb.TxnResponse, pred, ahead int) (driver.State, *entry, error) {
	kv := one(resp, pred)
	if kv == nil {
		return driver.Held, nil, nil
	}
	if ahead >= 0 {
		es, err := parseAll(p.queue, kvs(resp, ahead), true)
		if err != nil {
			return 0, nil, err
		}
		if holding(es) == len(es) {
			return driver.Held, nil, nil
		}
	}
	e, err := parse(p.queue, kv, false)
	if err != nil {
		return 0, nil, err
	}
	return driver.Waiting, &e, nil
}
