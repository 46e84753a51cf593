package holdfast

import (
	"context"
	"math/bits"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/heap"
)

const batchSize = 100 // tickets in one request; more would delay other requests

// renewalState is the renewer's record of a ticket; guarded by renewer.mu.
type renewalState struct {
	lane       *lane
	due        instant // when to renew
	end        instant // the ticket's key in the heap of claim ends
	dueIndex   int32   // index in the lane's heap, plus 1; 0: not in it
	endIndex   int32   // index in the heap of claim ends, plus 1; 0: not in it
	waiting    bool
	renewAgain bool // a gap occurred while the renewal was in flight
	removed    bool
}

// renewer renews the tickets of a client, waiting and held. Its goroutine
// decides what is sent and when, and never calls the driver itself, so a lane
// that does not reply delays only its own tickets. The timer in expiry.go
// watches the ends of claims independently, so that nothing that happens to a
// renewal can delay the report of a loss.
//
// A mutex guards the state, which the goroutine does not own: a Lock that
// succeeds at once then need not wake a goroutine. Under renewer.mu no other
// mutex is taken.
type renewer struct {
	c    *Client
	mu   sync.Mutex
	byID map[string]*ticket
	// laneOrder is a heap of the lanes, by when they can send next.
	lanes        map[laneKey]*lane
	laneOrder    heap.Heap[*lane, byReady]
	claimEnds    heap.Heap[*ticket, byEnd]
	claimTimer   *time.Timer // for claimEnds
	claimTimerAt instant     // when the timer fires; never: stopped
	wakeAt       instant     // when the goroutine looks again
	started      bool

	inFlight int
	wakeUp   chan struct{}
	results  chan *batch
	stopped  chan struct{}
}

// laneKey identifies a lane of the renewer. TTLs in one lane differ by less
// than a factor of two, so that a silent request about long leases cannot delay
// the renewal of short ones.
type laneKey struct {
	id   uint64 // Traits.Lane
	size int    // bits of the TTL
}

// laneKey returns the key of the lane of a ticket.
func (r *renewer) laneKey(t *driver.Ticket) laneKey {
	key := laneKey{size: bits.Len64(uint64(t.TTL))}
	if f := r.c.traits.Lane; f != nil {
		key.id = f(t.Name)
	}
	return key
}

// lane is a group of tickets whose requests travel together. A lane has one
// request in flight. If that request takes long, others may be sent for tickets
// that it does not carry, each some time after the one before.
type lane struct {
	key       laneKey
	health    *laneHealth
	tickets   heap.Heap[*ticket, byDue]
	inFlight  int
	lastSent  instant // when the last request was sent
	notBefore instant // no request before this, so that a round is spread
	laneIndex int32   // index in renewer.laneOrder, plus 1
}

// slowRequestShare is the share of the TTL, as a divisor, after which a request
// counts as slow.
const slowRequestShare = 24

// spreadShare is the share of the TTL, as a divisor, over which a round of renewals is
// spread. A renewal that is due for longer is late.
const spreadShare = 6

// maxLateRequests is the number of requests of a lane that are under way at once while
// renewals are late: with one at a time, a client could keep no more locks than the
// store answers requests in two thirds of a TTL, times batchSize.
const maxLateRequests = 4

type batch struct {
	lane     *lane
	tickets  []*ticket
	refs     []driver.Ref
	sent     instant
	statuses []driver.Status
	err      error
}

func (r *renewer) init(c *Client) {
	r.c = c
	r.byID = make(map[string]*ticket)
	r.lanes = make(map[laneKey]*lane)
	r.wakeAt, r.claimTimerAt = never, never
	r.wakeUp = make(chan struct{}, 1)
	r.results = make(chan *batch)
	r.stopped = make(chan struct{})
}

// track makes a ticket known for pushes before its first Join.
func (r *renewer) track(t *ticket) {
	r.mu.Lock()
	r.byID[t.ID] = t
	r.mu.Unlock()
}

// add renews t a third of its TTL after an answered request was sent, or
// earlier if the driver asks for it, or if the claim is clearly shorter than the TTL:
// a driver may promise what is left of an earlier lease, and two thirds of that are
// kept for further tries. t has a place; queue.mu guards the state that add reads.
func (r *renewer) add(t *ticket, sent instant, recheck time.Duration) {
	if t.isLeftToUser() {
		return
	}
	wait := t.TTL / 3
	if left := instant(t.claim.Load()).sub(sent); left < t.TTL*9/10 {
		wait = max(0, left/3)
	}
	if recheck > 0 && recheck < wait && t.state != driver.Held {
		wait = recheck
	}
	if t.state != driver.Held && r.c.subscription.missing() {
		wait = min(wait, min(max(sent.sub(t.joinSentAt)/4, 50*time.Millisecond), time.Second))
	}
	r.schedule(t, sent.add(wait))
}

// renewSoon renews t again soon, because a reply did not come or came too late.
// A waiting ticket is renewed at the latest when its lease ends.
func (r *renewer) renewSoon(t *ticket) {
	if t.isLeftToUser() {
		return
	}
	now := r.c.clock.now()
	due := now.add(max(t.TTL/20, time.Millisecond))
	if end := instant(t.claim.Load()); t.state == driver.Waiting && end > now {
		due = min(due, end)
	}
	r.schedule(t, due)
}

// renewNow renews t at once.
func (r *renewer) renewNow(t *ticket) { r.schedule(t, r.c.clock.now()) }

func (r *renewer) schedule(t *ticket, due instant) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.scheduleLocked(t, due, t.state != driver.Held)
}

// scheduleLocked is schedule for a ticket that waits or holds.
func (r *renewer) scheduleLocked(t *ticket, due instant, waiting bool) {
	if t.renewal.removed {
		return
	}
	r.byID[t.ID] = t
	if t.renewal.renewAgain {
		t.renewal.renewAgain = false
		due = r.c.clock.now()
	}
	t.renewal.due = due
	t.renewal.waiting = waiting
	if t.renewal.lane == nil || t.renewal.dueIndex == 0 && t.queue.key.manual {
		t.renewal.lane = r.laneOf(t) // an empty lane is forgotten
	}
	ln := t.renewal.lane
	ln.tickets.Set(t)
	r.reorder(ln)
	if !r.started {
		r.started = true
		go r.run()
	}
}

// remove forgets t: a reply in flight has no effect on it.
func (r *renewer) remove(t *ticket) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t.renewal.removed = true
	delete(r.byID, t.ID)
	r.claimEnds.Remove(t)
	if t.renewal.dueIndex > 0 {
		ln := t.renewal.lane
		ln.tickets.Remove(t)
		r.reorder(ln)
	}
}

func (r *renewer) laneOf(t *ticket) *lane {
	key := r.laneKey(&t.Ticket)
	ln := r.lanes[key]
	if ln == nil {
		ln = &lane{key: key, health: t.queue.laneHealth}
		r.lanes[key] = ln
	}
	return ln
}

// readyAt returns when the lane can send next.
func (ln *lane) readyAt() instant {
	if len(ln.tickets) == 0 {
		return never
	}
	first := ln.tickets[0]
	at := max(ln.notBefore, first.renewal.due)
	if ln.inFlight > 0 {
		next := ln.lastSent.add(first.TTL / slowRequestShare)
		if ln.inFlight < maxLateRequests {
			next = min(next, first.renewal.due.add(first.TTL/spreadShare))
		}
		at = max(at, next)
	}
	return at
}

// reorder restores the lane's position in the heap after a change, and wakes
// the goroutine if it has to look earlier than planned.
func (r *renewer) reorder(ln *lane) {
	r.laneOrder.Set(ln)
	if ln.readyAt() < r.wakeAt {
		select {
		case r.wakeUp <- struct{}{}:
		default:
		}
	}
	if len(ln.tickets) == 0 && ln.inFlight == 0 && r.c.traits.Lane != nil {
		r.laneOrder.Remove(ln)
		delete(r.lanes, ln.key)
	}
}

// run is the goroutine of the renewer; run ends with the client.
func (r *renewer) run() {
	defer close(r.stopped)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		if next := r.dispatch(); next != never {
			timer.Reset(max(0, next.sub(r.c.clock.now())))
		}
		select {
		case <-timer.C:
		case <-r.wakeUp:
		case b := <-r.results:
			r.applyReplies(b)
		case <-r.c.done:
			r.mu.Lock()
			n := r.inFlight
			r.mu.Unlock()
			for range n {
				<-r.results
			}
			return
		}
	}
}

// dispatch sends the due renewals and returns when to look again.
func (r *renewer) dispatch() instant {
	now := r.c.clock.now()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.wakeAt = never
	for len(r.laneOrder) > 0 {
		ln := r.laneOrder[0]
		if at := ln.readyAt(); at > now {
			r.wakeAt = at
			break
		}
		b := r.takeBatch(ln, now)
		ln.inFlight++
		ln.lastSent = now
		r.inFlight++
		r.laneOrder.Set(ln)
		go r.send(b)
	}
	return r.wakeAt
}

// takeBatch takes a batch off a lane: the due tickets, and those that soon will
// be, so that tickets of about one age keep travelling together.
func (r *renewer) takeBatch(ln *lane, now instant) *batch {
	b := &batch{lane: ln}
	first := ln.tickets[0].TTL
	rest := len(ln.tickets)
	for len(ln.tickets) > 0 && len(b.tickets) < batchSize {
		t := ln.tickets[0]
		if t.renewal.due > now.add(min(first, t.TTL)/16) {
			break
		}
		ln.tickets.Remove(t)
		b.tickets = append(b.tickets, t)
	}
	if batches := rest / batchSize; batches > 1 {
		// Spread the round; late tickets go at once.
		ln.notBefore = now.add(first / spreadShare / time.Duration(batches))
		if len(ln.tickets) > 0 && now.sub(ln.tickets[0].renewal.due) > first/spreadShare {
			ln.notBefore = now
		}
	}
	return b
}

// send calls the driver, on a goroutine of its own.
func (r *renewer) send(b *batch) {
	b.sent = r.c.clock.now()
	ttl, end := b.tickets[0].TTL, b.sent.add(b.tickets[0].TTL)
	for _, t := range b.tickets {
		ttl = min(ttl, t.TTL)
		if claim := instant(t.claim.Load()); claim > b.sent {
			end = min(end, claim)
		}
		b.refs = append(b.refs, driver.Ref{Ticket: &t.Ticket})
	}
	r.mu.Lock()
	for i, t := range b.tickets {
		b.refs[i].State = driver.Held
		if t.renewal.waiting {
			b.refs[i].State = driver.Waiting
		}
	}
	r.mu.Unlock()
	// Where replies take long, wait as long as there is time for another
	// request. A reply after the end of a lease is useless.
	least := renewTimeout(ttl)
	left := max(end.sub(b.sent), ttl/50)
	ctx, cancel := context.WithTimeout(r.c.requestCtx, min(b.lane.health.requestTimeout(requestRenew, least, left-least), left))
	defer cancel()
	b.statuses, b.err = b.lane.health.renewBatch(ctx, b.refs)
	r.results <- b
}

// applyReplies passes the replies of a batch to their queues.
func (r *renewer) applyReplies(b *batch) {
	var trouble error
	for i, t := range b.tickets {
		var st driver.Status
		if b.err == nil {
			st = b.statuses[i]
		}
		if b.err != nil {
			st.Err = b.err
		}
		if st.Err != nil {
			trouble = st.Err
			if st.State != driver.Gone {
				st.State = 0
			}
		}
		t.queue.onRenewReply(t, st, b.sent)
	}
	r.mu.Lock()
	r.inFlight--
	b.lane.inFlight--
	r.reorder(b.lane)
	r.mu.Unlock()
	if trouble != nil {
		r.c.report.storeError("renew", trouble)
	}
}

// notify receives the driver's pushes.
func (r *renewer) notify(id string, st driver.Status) {
	r.mu.Lock()
	if id != "" {
		t := r.byID[id]
		r.mu.Unlock()
		if t != nil {
			t.queue.onPush(t, st)
		}
		return
	}
	// A gap in the pushes: renew all waiting tickets. Tickets whose renewal is
	// in flight are renewed again, because the reply may precede the gap.
	now := r.c.clock.now()
	for _, t := range r.byID {
		switch {
		case t.renewal.dueIndex == 0:
			t.renewal.renewAgain = true
		case t.renewal.waiting:
			t.renewal.due = now
			t.renewal.lane.tickets.Set(t)
			r.reorder(t.renewal.lane)
		}
	}
	r.mu.Unlock()
}
