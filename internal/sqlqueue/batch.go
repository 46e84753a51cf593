package sqlqueue

import (
	"bytes"
	"context"
	"iter"
	"slices"
	"sync"

	"github.com/holdfast-go/holdfast/driver"
)

// Renew implements [driver.Driver.Renew]. A database error is reported for the
// tickets that it concerns; the other tickets are renewed.
func (s *Queues) Renew(ctx context.Context, db DB, refs []driver.Ref) ([]driver.Status, []Push) {
	b := newBatch(refs)
	fast := b.filter(func(i int, r *driver.Ref) bool { return r.State != driver.Waiting && b.onlyOfQueue(i) })
	b.fastPath(ctx, s, db, &s.t.renew, fast, func(i int, token int64) {
		b.setStatus(i, driver.Status{State: driver.Held, Token: uint64(token), Lease: refs[i].TTL})
	})
	if todo := b.unanswered(); len(todo) > 1 || len(todo) == 1 && !s.hasExpired(b.keys[todo[0]]) {
		b.bulk(ctx, s, db, todo, renewEdit)
	}
	return b.eachQueue(ctx, s, db, func(q *queue, r *driver.Ref) (driver.Status, error) {
		t, err := q.find(r.ID)
		if err != nil || t == nil {
			return driver.Status{State: driver.Gone}, err
		}
		q.extend(t)
		return q.status(t, r.TTL)
	})
}

// hasExpired reports whether the last request on a queue left expired tickets
// in it, and clears that mark. A waiter there rechecks at once, and a bulk
// would read all the queue's tickets only to find that it cannot decide.
func (s *Queues) hasExpired(key []byte) bool {
	last := s.expiredIn.Load()
	return last != nil && bytes.Equal(*last, key) && s.expiredIn.CompareAndSwap(last, nil)
}

// Leave implements [driver.Driver.Leave]. A database error is reported for the
// tickets that it concerns; the other tickets leave.
func (s *Queues) Leave(ctx context.Context, db DB, refs []driver.Ref) ([]driver.Status, []Push) {
	b := newBatch(refs)
	handsOff := s.t.handOff != nil || s.compounds(db) != nil
	var fast, contended []int
	for _, i := range b.filter(func(i int, r *driver.Ref) bool {
		return r.State != driver.Waiting && !r.JoinPending && r.Owner == "" && b.onlyOfQueue(i)
	}) {
		// handOff saves a round trip if somebody waits, and costs little more
		// if nobody does. But it takes a round trip for each queue.
		now := s.contention.last(b.keys[i])
		switch {
		case handsOff && refs[i].Limit == 1 && (now || len(refs) == 1 && s.contention.recent(b.keys[i])):
			contended = append(contended, i)
		case !now:
			fast = append(fast, i)
		}
	}
	b.fastPath(ctx, s, db, &s.t.leave, fast, func(i int, token int64) {
		b.setStatus(i, driver.Status{State: driver.Held, Token: uint64(token)})
	})
	granted := b.handOff(ctx, s, db, contended)
	if len(refs) > 1 {
		b.bulk(ctx, s, db, b.unanswered(), leaveEdit)
	}
	statuses, pushes := b.eachQueue(ctx, s, db, func(q *queue, r *driver.Ref) (driver.Status, error) {
		p, err := q.remove(r.ID)
		if err == nil && r.JoinPending {
			q.rows.addTombstone(r.ID)
		}
		return p, err
	})
	return statuses, append(granted, pushes...)
}

// batch is one call of Renew or Leave.
type batch struct {
	refs     []driver.Ref
	keys     [][]byte
	statuses []driver.Status
	done     []bool
	perQueue map[string]int // the number of refs of each queue
}

func newBatch(refs []driver.Ref) *batch {
	b := &batch{
		refs:     refs,
		keys:     make([][]byte, len(refs)),
		statuses: make([]driver.Status, len(refs)),
		done:     make([]bool, len(refs)),
		perQueue: make(map[string]int, len(refs)),
	}
	for i := range refs {
		b.perQueue[refs[i].Name]++
		b.keys[i] = Key(refs[i].Name)
	}
	return b
}

func (b *batch) setStatus(i int, p driver.Status) { b.statuses[i], b.done[i] = p, true }

// onlyOfQueue reports whether i is the only ref of its queue. Statements that
// decide about many queues name queues in their answers, not tickets.
func (b *batch) onlyOfQueue(i int) bool { return b.perQueue[b.refs[i].Name] == 1 }

// filter returns the indices of the refs that f chooses.
func (b *batch) filter(f func(int, *driver.Ref) bool) []int {
	var out []int
	for i := range b.refs {
		if f(i, &b.refs[i]) {
			out = append(out, i)
		}
	}
	return out
}

// unanswered returns the indices of the refs that have no answer yet.
func (b *batch) unanswered() []int {
	return b.filter(func(i int, _ *driver.Ref) bool { return !b.done[i] })
}

// inKeyOrder returns indices of refs in the order of their queues' keys.
func (b *batch) inKeyOrder(todo []int) []int {
	todo = slices.Clone(todo)
	slices.SortStableFunc(todo, func(i, j int) int { return bytes.Compare(b.keys[i], b.keys[j]) })
	return todo
}

// byQueue splits todo, which must be in order, and yields the indices of one
// queue at a time.
func (b *batch) byQueue(todo []int) iter.Seq[[]int] {
	return func(yield func([]int) bool) {
		for len(todo) > 0 {
			n := 1
			for n < len(todo) && bytes.Equal(b.keys[todo[n]], b.keys[todo[0]]) {
				n++
			}
			if !yield(todo[:n:n]) {
				return
			}
			todo = todo[n:]
		}
	}
}

// eachQueue handles the remaining refs, one transaction for each queue. Where
// the database is a round trip away, several transactions run at once. A call
// begins where the last one ended, so that calls which run out of time do not
// always fail the same queues.
func (b *batch) eachQueue(ctx context.Context, s *Queues, db DB, do func(*queue, *driver.Ref) (driver.Status, error)) ([]driver.Status, []Push) {
	queues := slices.Collect(b.byQueue(b.inKeyOrder(b.unanswered())))
	if last := s.lastKey.Load(); last != nil && len(queues) > 1 {
		first, _ := slices.BinarySearchFunc(queues, *last, func(same []int, last []byte) int {
			return max(-1, 2*bytes.Compare(b.keys[same[0]], last)-1) // past it
		})
		queues = slices.Concat(queues[first:], queues[:first])
	}
	var mu sync.Mutex
	var pushes []Push
	one := func(same []int) {
		create := false
		for _, i := range same {
			create = create || b.refs[i].JoinPending
		}
		caused, err := s.visit(ctx, db, b.refs[same[0]].Name, b.refs[same[0]].ID, create, func(q *queue) error {
			for _, i := range same {
				q.steps, q.drops = 0, 0
				p, err := do(q, &b.refs[i])
				if err != nil {
					return err
				}
				b.statuses[i] = p
			}
			return nil
		})
		if err != nil {
			for _, i := range same {
				b.statuses[i] = driver.Status{Err: err}
			}
		}
		mu.Lock()
		defer mu.Unlock()
		pushes = append(pushes, caused...)
		if ctx.Err() == nil {
			s.lastKey.Store(&b.keys[same[0]])
		}
	}
	if s.d.Clock != nil || len(queues) == 1 {
		for _, same := range queues {
			one(same)
		}
		return b.statuses, pushes
	}
	next := make(chan []int)
	var wg sync.WaitGroup
	for range min(len(queues), queuesAtOnce) {
		wg.Go(func() {
			for same := range next {
				one(same)
			}
		})
	}
	for _, same := range queues {
		next <- same
	}
	close(next)
	wg.Wait()
	return b.statuses, pushes
}

// queuesAtOnce is the number of transactions that one call runs at once. It is
// lower than the size of a pool, so that another request finds a connection.
const queuesAtOnce = 3
