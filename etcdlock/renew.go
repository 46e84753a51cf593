package etcdlock

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// Renew implements [driver.Driver]: one keep-alive for each session, unless
// one was just answered, and reads of what is not known otherwise, up to 120
// to a request. Held places whose own key is watched need none: their
// lease is confirmed, and that somebody deleted the key would have been heard.
func (d *Driver) Renew(ctx context.Context, refs []driver.Ref) ([]driver.Place, error) {
	if err := d.before(ctx); err != nil {
		return nil, err
	}
	start := time.Now()
	answers := make([]driver.Place, len(refs))
	var ps []*place
	var at []int
	d.mu.Lock()
	for i, ref := range refs {
		p := d.find(ref.Ticket)
		if p == nil || p.over.Load() || p.late {
			answers[i].State = driver.Gone
			continue
		}
		if p.ownRev() == 0 {
			answers[i].Err = driver.Errorf(driver.Unknown, "the ticket's Join was not answered")
			continue
		}
		ps, at = append(ps, p), append(at, i)
	}
	d.mu.Unlock()
	got, err := d.renew(ctx, ps, start)
	for i := range ps {
		if err != nil {
			answers[at[i]] = driver.Place{Err: err}
		} else {
			answers[at[i]] = got[i]
		}
	}
	return answers, failed(answers)
}

// failed returns the error of the first of places that all have one: then the
// whole call has failed.
func failed(places []driver.Place) error {
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
func (d *Driver) renew(ctx context.Context, ps []*place, start time.Time) ([]driver.Place, error) {
	answers := make([]driver.Place, len(ps))
	var read []*place
	var at []int
	d.mu.Lock()
	for i, p := range ps {
		for _, s := range []*session{p.sess, p.owner} {
			if s != nil && !s.over && !s.fresh() {
				d.askBeat(s)
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
		n, seen, err := d.look(ctx, read)
		for i := range n {
			switch {
			case err != nil:
				answers[at[i]].Err = err
			case seen[i].err != nil:
				answers[at[i]].Err = seen[i].err
			default:
				s := seen[i]
				answers[at[i]] = driver.Place{State: s.state, Ahead: s.ahead, Recheck: recheck(s.pred)}
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
			d.forget(p)
			d.mu.Unlock()
			continue
		}
		a, err := d.answer(ctx, p, answers[i], start)
		if err != nil {
			a = driver.Place{Err: err}
		}
		answers[i] = a
	}
	return answers, nil
}

// maxReads is how many reads make one request: a server takes 128 operations
// in a transaction, unless told otherwise. A place that holds costs one read,
// one that waits two or three, and one of a named owner one more. Servers that
// take fewer say so, see room.go.
const maxReads = 120

// seen is where a place stands.
type seen struct {
	state driver.State
	ahead int // -1 when not known
	pred  *entry
	rev   int64 // of the store, when it was read
	news  bool  // that it holds was not known
	err   error // what is before it in its line is no lock's; concerns no other place
}

// look reads where places stand, by one request, and notes what is new without
// telling the core of it. It takes as many of the places as fit, at least one,
// and returns how many these were, also with an error.
func (d *Driver) look(ctx context.Context, ps []*place) (int, []seen, error) {
	type view struct{ own, place, pred, ahead int }
	var ops []*pb.RequestOp
	add := func(r *pb.RangeRequest) int {
		ops = append(ops, opGet(r))
		return len(ops) - 1
	}
	var views []view
	most := d.room.ops()
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
			v.pred = add(newest(p.line, p.rev, 1))
			if p.t.Limit > 1 {
				r := keysOnly(inOrder(p.line))
				r.MaxCreateRevision = p.rev
				v.ahead = add(r)
			}
		}
		views = append(views, v)
	}
	d.mu.Unlock()
	ps = ps[:len(views)]
	resp, err := d.txn(ctx, nil, ops, nil)
	if d.room.refused(err, len(ops)) {
		return d.look(ctx, ps)
	}
	if err != nil {
		return len(ps), nil, err
	}
	all := make([]seen, len(ps))
	for i, p := range ps {
		v := views[i]
		s := seen{state: driver.Gone, ahead: -1, rev: resp.Header.Revision}
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
			if s.state, s.pred, s.err = d.stand(p, resp, v.pred, v.ahead); s.err != nil {
				break
			}
			if v.ahead >= 0 {
				s.ahead = len(kvs(resp, v.ahead)) - 1
			}
			if s.state == driver.Held {
				d.mu.Lock()
				s.news = d.held(p, nil)
				d.mu.Unlock()
			}
		}
		all[i] = s
	}
	return len(ps), all, nil
}

// reads is how many reads say where the place stands. The caller has
// Driver.mu.
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

// stand says whether a place holds, by what is ahead of it, and else whom it
// waits for.
func (d *Driver) stand(p *place, resp *pb.TxnResponse, pred, ahead int) (driver.State, *entry, error) {
	kv := one(resp, pred)
	if kv == nil {
		return driver.Held, nil, nil
	}
	if ahead >= 0 {
		es, err := parseAll(p.line, kvs(resp, ahead), true)
		if err != nil {
			return 0, nil, err
		}
		if holding(es) == len(es) {
			return driver.Held, nil, nil
		}
	}
	e, err := parse(p.line, kv, false)
	if err != nil {
		return 0, nil, err
	}
	return driver.Waiting, &e, nil
}
