package etcdlock

import (
	"strings"

	"github.com/holdfast-go/holdfast/driver"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

// Comparisons. A comparison of a range is true if it is true for every key in
// it; the revisions of an empty range are 0.

func createdIs(key string, rev int64) *pb.Compare {
	return &pb.Compare{Key: []byte(key), Target: pb.Compare_CREATE, Result: pb.Compare_EQUAL,
		TargetUnion: &pb.Compare_CreateRevision{CreateRevision: rev}}
}

func absent(key string) *pb.Compare { return createdIs(key, 0) }

func empty(from, to string) *pb.Compare {
	c := absent(from)
	c.RangeEnd = []byte(to)
	return c
}

// noneAfter is true if no key of the queue was created after rev.
func noneAfter(queue string, rev int64) *pb.Compare {
	return &pb.Compare{Key: []byte(queue), RangeEnd: []byte(after(queue)), Target: pb.Compare_CREATE, Result: pb.Compare_LESS,
		TargetUnion: &pb.Compare_CreateRevision{CreateRevision: rev + 1}}
}

func leaseIs(key string, lease int64) *pb.Compare {
	return &pb.Compare{Key: []byte(key), Target: pb.Compare_LEASE, Result: pb.Compare_EQUAL, TargetUnion: &pb.Compare_Lease{Lease: lease}}
}

func valueIs(key, value string) *pb.Compare {
	return &pb.Compare{Key: []byte(key), Target: pb.Compare_VALUE, Result: pb.Compare_EQUAL,
		TargetUnion: &pb.Compare_Value{Value: []byte(value)}}
}

// Requests.

func get(key string) *pb.RangeRequest { return &pb.RangeRequest{Key: []byte(key)} }

func getKey(key string) *pb.RangeRequest { return &pb.RangeRequest{Key: []byte(key), KeysOnly: true} }

func all(from, to string) *pb.RangeRequest {
	return &pb.RangeRequest{Key: []byte(from), RangeEnd: []byte(to)}
}

// inOrder requests the keys of a queue, oldest first.
func inOrder(queue string) *pb.RangeRequest {
	r := all(queue, after(queue))
	r.SortTarget, r.SortOrder = pb.RangeRequest_CREATE, pb.RangeRequest_ASCEND
	return r
}

// newest requests the keys of a queue, newest first; only those before a
// revision, unless it is 0.
func newest(queue string, before, n int64) *pb.RangeRequest {
	r := all(queue, after(queue))
	r.SortTarget, r.SortOrder = pb.RangeRequest_CREATE, pb.RangeRequest_DESCEND
	r.Limit = n
	if before > 0 {
		r.MaxCreateRevision = before - 1
	}
	return r
}

func keysOnly(r *pb.RangeRequest) *pb.RangeRequest {
	r.KeysOnly = true
	return r
}

func limit(r *pb.RangeRequest, n int64) *pb.RangeRequest {
	r.Limit = n
	return r
}

func opGet(r *pb.RangeRequest) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: r}}
}

func opPut(key, value string, lease int64) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: []byte(key), Value: []byte(value), Lease: lease}}}
}

func opDelete(key string) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: &pb.DeleteRangeRequest{Key: []byte(key)}}}
}

func opTxn(cmp []*pb.Compare, then, otherwise []*pb.RequestOp) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestTxn{RequestTxn: &pb.TxnRequest{Compare: cmp, Success: then, Failure: otherwise}}}
}

// kvs returns the keys that the i-th request of a transaction has read.
func kvs(r *pb.TxnResponse, i int) []*mvccpb.KeyValue {
	return r.Responses[i].GetResponseRange().GetKvs()
}

// one returns the key that the i-th request has read, or nil if it does not
// exist.
func one(r *pb.TxnResponse, i int) *mvccpb.KeyValue {
	if k := kvs(r, i); len(k) > 0 {
		return k[0]
	}
	return nil
}

// preconditions returns the preconditions of a new place: its key does not exist, its
// ticket has no tombstone, and the queue has no place with another limit.
func (p *place) preconditions() []*pb.Compare {
	cmp := []*pb.Compare{absent(p.key), absent(p.all.keys.tomb(p.t.ID))}
	for _, r := range others(p.queue, p.t.Limit) {
		cmp = append(cmp, empty(r[0], r[1]))
	}
	return cmp
}

// conflictReads returns the reads that explain a failed precondition; readConflict
// interprets their results.
func (p *place) conflictReads() []*pb.RequestOp {
	ops := []*pb.RequestOp{
		opGet(getKey(p.all.keys.tomb(p.t.ID))), opGet(get(p.key)), opGet(limit(inOrder(p.queue), 1)),
	}
	for _, r := range others(p.queue, p.t.Limit) {
		ops = append(ops, opGet(limit(all(r[0], r[1]), 1)))
	}
	return ops
}

// readConflict returns the reason why a precondition failed: a tombstone (absent), a
// key of another ticket (again), an earlier request that made the place (rev), or a
// place with another limit.
func (p *place) readConflict(resp *pb.TxnResponse) (r joined, err error) {
	if one(resp, 0) != nil {
		return joined{absent: true, state: driver.Gone}, nil
	}
	if kv := one(resp, 1); kv != nil {
		if string(kv.Value) == p.value {
			return joined{rev: kv.CreateRevision}, nil
		}
		return joined{again: true}, nil
	}
	if kv := one(resp, 2); kv != nil {
		first, err := parse(p.queue, kv, false)
		if err != nil {
			return r, driver.Wrap(driver.Refused, err)
		}
		r.first = &first
	}
	for i := range others(p.queue, p.t.Limit) {
		if kv := one(resp, 3+i); kv != nil {
			e, err := parse(p.queue, kv, false)
			if err != nil {
				return r, driver.Wrap(driver.Refused, err)
			}
			return r, &driver.LimitError{Name: p.t.Name, Have: e.limit, Want: p.t.Limit}
		}
	}
	return r, nil
}

// joinTxn returns the transaction that makes the place, and reads what is before it.
func (p *place) joinTxn(wait bool) *pb.TxnRequest {
	cmp := p.preconditions()
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
	return &pb.TxnRequest{Compare: cmp, Success: then, Failure: p.conflictReads()}
}

// readJoin reads the state and the predecessor of a place that joinTxn made.
func (p *place) readJoin(resp *pb.TxnResponse) (joined, error) {
	r := joined{rev: resp.Header.Revision, state: driver.Waiting}
	last, err := parseAll(p.queue, kvs(resp, 1), false)
	if err != nil {
		return r, err
	}
	first, err := parseAll(p.queue, kvs(resp, 2), false)
	if err != nil {
		return r, err
	}
	count := int(resp.Responses[1].GetResponseRange().Count)
	holds := count == 1
	if p.t.Limit > 1 {
		es, err := parseAll(p.queue, kvs(resp, 3), true)
		if err != nil {
			return r, err
		}
		count, holds = len(es), holding(es) == len(es)
	}
	if holds {
		r.state = driver.Held
		return r, nil
	}
	r.pred = &last[1]
	r.place = driver.Status{Ahead: count - 1, Recheck: recheck(r.pred)}
	if first[0].ours {
		r.place.Holder = first[0].meta
	}
	return r, nil
}

// hints is the number of waiters that one request reads, and that one release
// passes on to the next.
const hints = 8

// leavePairTxn returns the transaction that releases a mutex which two clients pass to
// each other, or nil if the place has no rival. The other client's key is the same
// every time, whether it is waiting again or not. As long as the queue has no third
// place, the transaction deletes the holder's key and notifies the other client if
// its key exists.
func (p *place) leavePairTxn(rival string) *pb.TxnRequest {
	if rival == "" || rival == p.key {
		return nil
	}
	a, b := min(p.key, rival), max(p.key, rival)
	wake, lease := p.all.keys.wakeOf(rival[len(p.queue):])
	there := absent(rival)
	there.Result = pb.Compare_GREATER
	return &pb.TxnRequest{
		Compare: []*pb.Compare{createdIs(p.key, p.rev),
			empty(p.queue, a), empty(a+"\x00", b), empty(b+"\x00", after(p.queue))},
		Success: []*pb.RequestOp{opDelete(p.key),
			opTxn([]*pb.Compare{there}, []*pb.RequestOp{opPut(wake, message{key: rival}.encode(), lease)}, nil)},
		Failure: p.leaveReads(),
	}
}

// handOffTxn returns the transaction that releases a mutex to the next waiter, if that
// is still the first one of next, or to nobody, if there is none.
func (p *place) handOffTxn(next []successor) *pb.TxnRequest {
	txn := &pb.TxnRequest{
		Compare: []*pb.Compare{createdIs(p.key, p.rev)},
		Success: []*pb.RequestOp{opDelete(p.key)},
		Failure: p.leaveReads(),
	}
	if len(next) == 0 {
		txn.Compare = append(txn.Compare, noneAfter(p.queue, p.rev))
		return txn
	}
	n := next[0]
	key := p.queue + n.suffix
	txn.Compare = append(txn.Compare, createdIs(key, n.rev))
	if !n.foreign {
		wake, lease := p.all.keys.wakeOf(n.suffix)
		txn.Success = append(txn.Success, opPut(wake, message{key: key, rev: n.rev, next: next[1:]}.encode(), lease))
	}
	return txn
}

// leaveReads returns the reads that explain why a mutex was not released: its own key,
// and the waiters.
func (p *place) leaveReads() []*pb.RequestOp {
	return []*pb.RequestOp{opGet(getKey(p.key)), opGet(limit(inOrder(p.queue), hints+1))}
}

// leaveTxn returns the transaction that deletes the ticket's key, and reads the
// queue as it was before.
func (p *place) leaveTxn(was *progress) *pb.TxnRequest {
	mine := createdIs(was.key, was.rev)
	if was.rev == 0 {
		mine = valueIs(was.key, p.value)
	}
	r := inOrder(p.queue)
	if p.t.Limit == 1 {
		r = limit(r, hints+2)
	} else {
		r = keysOnly(r)
	}
	return &pb.TxnRequest{Compare: []*pb.Compare{mine}, Success: []*pb.RequestOp{opGet(r), opDelete(was.key)}}
}

// successors returns the waiters behind p, in order, from a read of the queue: all
// those that a release may name as next. A key that is not a lock's must not keep p
// from leaving.
func (p *place) successors(r *pb.RangeResponse) (next []successor) {
	for _, kv := range r.Kvs {
		e, err := parse(p.queue, kv, false)
		if err != nil || e.rev <= p.rev {
			continue
		}
		next = append(next, successor{suffix: strings.TrimPrefix(e.key, p.queue), rev: e.rev, foreign: !e.ours})
		if !e.ours || len(next) == hints {
			break
		}
	}
	return next
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

// wakeOf returns the wake key of the client that has a place, and its lease.
func (l layout) wakeOf(suffix string) (key string, lease int64) {
	h, id := leaseOf(suffix)
	return l.wake(h), id
}

// wakeOps returns the operations that notify places that they hold. Each depends on
// the place's key.
func (l layout) wakeOps(queue string, es []entry) []*pb.RequestOp {
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
		key, lease := l.wakeOf(suffix)
		x := byKey[key]
		if x == nil {
			if len(order) == driver.MaxSteps {
				break
			}
			x = &letter{lease: lease}
			byKey[key] = x
			order = append(order, key)
		}
		x.text = append(x.text, message{key: e.key, rev: e.rev}.encode())
		if len(x.cmp) == 0 {
			x.cmp = append(x.cmp, createdIs(e.key, e.rev))
		}
	}
	ops := make([]*pb.RequestOp, len(order))
	for i, key := range order {
		x := byKey[key]
		ops[i] = opTxn(x.cmp, []*pb.RequestOp{opPut(key, strings.Join(x.text, "\n"), x.lease)}, nil)
	}
	return ops
}
