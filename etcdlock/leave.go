package etcdlock

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// Leave implements [driver.Driver]. Tickets of one line leave one after the
// other, in the order of refs; lines do not wait for each other.
func (d *Driver) Leave(ctx context.Context, refs []driver.Ref) ([]driver.Place, error) {
	if err := d.before(ctx); err != nil {
		return nil, err
	}
	answers := make([]driver.Place, len(refs))
	one := func(i int) {
		s, err := d.leave(ctx, refs[i])
		answers[i] = driver.Place{State: s, Err: err}
	}
	if len(refs) == 1 {
		one(0)
		return answers, failed(answers)
	}
	lines := make(map[string][]int)
	for i, ref := range refs {
		lines[ref.Name] = append(lines[ref.Name], i)
	}
	const callers = 16
	room := make(chan struct{}, callers)
	var wg sync.WaitGroup
	for _, is := range lines {
		room <- struct{}{}
		wg.Go(func() {
			defer func() { <-room }()
			for _, i := range is {
				one(i)
			}
		})
	}
	wg.Wait()
	return answers, failed(answers)
}

// leave gives one ticket's place up.
func (d *Driver) leave(ctx context.Context, ref driver.Ref) (driver.State, error) {
	d.mu.Lock()
	p := d.find(ref.Ticket)
	if p == nil || p.over.Load() {
		buried := d.graves.has(ref.ID)
		d.mu.Unlock()
		if !ref.Unsure || buried {
			return driver.Gone, nil
		}
		return driver.Gone, d.bury(ctx, ref.ID)
	}
	p.late = true // from now on no answer says that it has a place
	unsure, rev := ref.Unsure || p.ownRev() == 0, p.rev
	d.mu.Unlock()
	if unsure {
		// First, so that nothing can come behind the deletion.
		if err := d.bury(ctx, ref.ID); err != nil {
			return 0, err
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
	if noLease(err) { // of the one to be woken; it has gone
		s, err = d.leavePlainly(ctx, p, false)
	}
	if full(err) && p.t.Owner == "" {
		s, err = d.leavePlainly(ctx, p, true)
	}
	if err != nil {
		return 0, err
	}
	d.mu.Lock()
	d.forget(p)
	if unsure {
		d.graves.add(ref.ID)
	}
	d.mu.Unlock()
	return s, nil
}

// hints is how many of those who wait are read at a time, and passed on from
// one who leaves to the next.
const hints = 8

// leaveMutex releases or abandons a mutex.
//
// One that holds touches the wake key of the next in the transaction in which
// it goes, which depends on the next one's key: so the hand-over is one step,
// and is told to one client. Who the next one is it was told by the one who
// left before it, or it reads: nobody can come between, only vanish. Whoever
// was not told to wait supposes that it is alone, and depends on that.
func (d *Driver) leaveMutex(ctx context.Context, p *place) (driver.State, error) {
	d.mu.Lock()
	next, waited, held, rival := p.next, p.waited, p.state == driver.Held, p.rival
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
		if next, err = behind(p, resp.Responses[1].GetResponseRange()); err != nil {
			return 0, err
		}
	} else if len(next) == 0 && waited {
		r := limit(inOrder(p.line), hints+1)
		r.Serializable = true // a hint: the transaction finds out what is stale
		resp, err := d.read(ctx, r)
		if err != nil {
			return 0, err
		}
		if next, err = behind(p, resp); err != nil {
			return 0, err
		}
	}
	for range maxTries {
		cmp := []*pb.Compare{createdIs(p.key, p.rev)}
		then := []*pb.RequestOp{opDelete(p.key)}
		if len(next) == 0 {
			cmp = append(cmp, noneAfter(p.line, p.rev))
		} else {
			n := next[0]
			key := p.line + n.suffix
			cmp = append(cmp, createdIs(key, n.rev))
			if !n.foreign {
				wake, lease := d.wakeOf(n.suffix)
				then = append(then, opPut(wake, message{key: key, rev: n.rev, next: next[1:]}.encode(), lease))
			}
		}
		resp, err := d.txn(ctx, cmp, then, []*pb.RequestOp{opGet(getKey(p.key)), opGet(limit(inOrder(p.line), hints+1))})
		if err != nil {
			return 0, err
		}
		if resp.Succeeded {
			return driver.Held, nil
		}
		if kv := one(resp, 0); kv == nil || kv.CreateRevision != p.rev {
			return driver.Gone, nil
		}
		if next, err = behind(p, resp.Responses[1].GetResponseRange()); err != nil {
			return 0, err
		}
	}
	return d.leavePlainly(ctx, p, false)
}

// leavePair releases a mutex that two clients pass to each other: the other's
// key is the same every time, whether it waits again already or not. In one
// step the holder goes, and the other is told if it is there, as long as there
// is nobody else.
func (d *Driver) leavePair(ctx context.Context, p *place, rival string) (*pb.TxnResponse, error) {
	a, b := min(p.key, rival), max(p.key, rival)
	cmp := []*pb.Compare{createdIs(p.key, p.rev),
		empty(p.line, a), empty(a+"\x00", b), empty(b+"\x00", after(p.line))}
	wake, lease := d.wakeOf(rival[len(p.line):])
	there := absent(rival)
	there.Result = pb.Compare_GREATER
	then := []*pb.RequestOp{opDelete(p.key),
		opTxn([]*pb.Compare{there}, []*pb.RequestOp{opPut(wake, message{key: rival}.encode(), lease)}, nil)}
	return d.txn(ctx, cmp, then, []*pb.RequestOp{opGet(getKey(p.key)), opGet(limit(inOrder(p.line), hints+1))})
}

// behind returns those who wait behind p, in order, from a reading of the
// line: all that the one before them may know to be next.
func behind(p *place, r *pb.RangeResponse) ([]succ, error) {
	es, err := parseAll(p.line, r.Kvs, false)
	if err != nil {
		// Something in the line is no lock. It is not in our way out.
		es = nil
		for _, kv := range r.Kvs {
			if e, err := parse(p.line, kv, false); err == nil {
				es = append(es, e)
			}
		}
	}
	var next []succ
	for _, e := range es {
		if e.rev <= p.rev {
			continue
		}
		next = append(next, succ{suffix: strings.TrimPrefix(e.key, p.line), rev: e.rev, foreign: !e.ours})
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

// leavePlainly deletes a ticket's key, reads the line as it is then, and tells
// those who hold by it in a second request. Quiet leaves that out: a store that
// is full deletes, but does not take wake-ups; those who wait find out by
// watching who was before them.
func (d *Driver) leavePlainly(ctx context.Context, p *place, quiet bool) (driver.State, error) {
	d.mu.Lock()
	mine := createdIs(p.key, p.rev)
	if p.rev == 0 {
		mine = valueIs(p.key, p.value)
	}
	believed := p.state
	d.mu.Unlock()
	r := inOrder(p.line)
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
	es, err := parseAll(p.line, kvs(resp, 0), p.t.Limit > 1)
	if err != nil {
		return max(believed, driver.Waiting), nil
	}
	state, woken := departure(es, p.key)
	if state == driver.Waiting && believed == driver.Held {
		state = driver.Held
	}
	if !quiet {
		d.wake(ctx, p.line, woken)
	}
	return state, nil
}

// departure says whether the place of that key held, in a line as it was
// before it left, and who holds only since it left.
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

// wake tells places that they hold: one request, in which each telling depends
// on the place being there. That it fails is no error: those who wait watch
// who was before them, and ask.
func (d *Driver) wake(ctx context.Context, line string, es []entry) {
	type letter struct {
		cmp   []*pb.Compare
		text  []string
		lease int64
	}
	byKey := make(map[string]*letter)
	var order []string
	for _, e := range es {
		suffix := strings.TrimPrefix(e.key, line)
		// Only records are ours; of keys alone the long ones are.
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
		n := min(len(ops), d.room.ops())
		if _, err := d.txn(ctx, nil, ops[:n], nil); d.room.refused(err, n) {
			continue
		}
		ops = ops[n:]
	}
}

// bury makes a tombstone: no Join of the ticket has an effect that is carried
// out after it. It lives by a lease of its own, longer than any request. In a
// store that is full there is none, and no Join either.
func (d *Driver) bury(ctx context.Context, id string) error {
	lease, err := d.grave(ctx)
	if err == nil {
		_, err = d.txn(ctx, nil, []*pb.RequestOp{opPut(d.keys.tomb(id), "", lease)}, nil)
		if noLease(err) {
			d.mu.Lock()
			d.burial = burial{}
			d.mu.Unlock()
		}
	}
	if err != nil && !full(err) {
		return err
	}
	d.mu.Lock()
	d.graves.add(id)
	d.mu.Unlock()
	return nil
}

// burial is the lease of tombstones.
type burial struct {
	lease int64
	since time.Time
}

// grave returns a lease that lasts for at least requestAge.
func (d *Driver) grave(ctx context.Context) (int64, error) {
	d.mu.Lock()
	b := d.burial
	d.mu.Unlock()
	if b.lease != 0 && since(b.since) < requestAge/2 {
		return b.lease, nil
	}
	asked := time.Now()
	resp, err := d.leases.LeaseGrant(ctx, &pb.LeaseGrantRequest{TTL: int64(2 * requestAge / time.Second)})
	if err != nil {
		return 0, classed(ctx, err)
	}
	d.mu.Lock()
	d.burial = burial{resp.ID, asked}
	d.mu.Unlock()
	return resp.ID, nil
}
