package holdfast

import (
	"container/heap"
	"context"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

const (
	batchSize  = 100 // tickets in one request; more would delay everybody else's
	maxCallers = 4   // requests under way at once
)

// keeping is what the keeper knows of a ticket; guarded by keeper.mu.
type keeping struct {
	lane    *lane
	due     instant // when to renew or ask
	end     instant // under which it stands in the heap of claims
	at      int32   // place in the lane's heap, plus 1; 0 for none
	endAt   int32   // place in the heap of claims, plus 1; 0 for none
	waiting bool
	again   bool // pushes may have been lost while it was asked for
	gone    bool
}

// keeper renews the tickets of a client, waiting and held. Its goroutine
// decides what is sent and when, and never calls the driver itself: a lane
// that does not answer costs its own tickets only. The ends of claims are
// watched apart from it, by the timer in deadline.go, so that nothing that
// happens to a renewal can delay the report of a loss.
//
// Its state is behind a mutex rather than in the goroutine alone, because a
// Lock that succeeds at once should not have to wake a goroutine.
type keeper struct {
	c    *Client
	mu   sync.Mutex
	byID map[string]*ticket
	// lanes have a heap of their own, by when they can send next.
	lanes map[uint64]*lane
	order laneHeap
	ends  endHeap
	timer *time.Timer // for ends
	armed instant     // when the timer fires, never if it does not
	wake  instant     // when the goroutine looks again
	on    bool

	flying  int
	kick    chan struct{}
	results chan *batch
	stopped chan struct{}
}

// lane is a group of tickets whose requests travel together.
type lane struct {
	id     uint64
	heap   dueHeap
	flying bool
	after  instant // not before, so that a round is spread
	at     int     // place in keeper.order, plus 1
}

type batch struct {
	lane    *lane
	tickets []*ticket
	refs    []driver.Ref
	sent    instant
	places  []driver.Place
	err     error
}

func (k *keeper) start(c *Client) {
	k.c = c
	k.byID = make(map[string]*ticket)
	k.lanes = make(map[uint64]*lane)
	k.wake, k.armed = never, never
	k.kick = make(chan struct{}, 1)
	k.results = make(chan *batch, maxCallers)
	k.stopped = make(chan struct{})
}

// track makes a ticket known for pushes, before its first Join.
func (k *keeper) track(t *ticket) {
	k.mu.Lock()
	k.byID[t.ID] = t
	k.mu.Unlock()
}

// add renews t a third of its TTL after an answered request, or earlier if the
// driver asks for it. The caller has line.mu, and t has a place.
func (k *keeper) add(t *ticket, sent instant, recheck time.Duration) {
	wait := t.TTL / 3
	if recheck > 0 && recheck < wait && t.state != driver.Held {
		wait = recheck
	}
	k.schedule(t, sent.add(wait))
}

// retry asks for t again soon: an answer did not come, or came too late.
func (k *keeper) retry(t *ticket) {
	k.schedule(t, k.c.clock.now().add(max(20*time.Millisecond, t.TTL/20)))
}

// ask asks for t at once.
func (k *keeper) ask(t *ticket) { k.schedule(t, k.c.clock.now()) }

func (k *keeper) schedule(t *ticket, due instant) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if t.keep.gone {
		return
	}
	k.byID[t.ID] = t
	if t.keep.again {
		t.keep.again = false
		due = k.c.clock.now()
	}
	t.keep.due = due
	t.keep.waiting = t.state != driver.Held
	if t.keep.lane == nil {
		t.keep.lane = k.laneOf(t.Name)
	}
	ln := t.keep.lane
	if t.keep.at == 0 {
		heap.Push(&ln.heap, t)
	} else {
		heap.Fix(&ln.heap, int(t.keep.at)-1)
	}
	k.reorder(ln)
	if !k.on {
		k.on = true
		go k.run()
	}
}

// remove forgets t: whatever an answer under way says of it is dropped.
func (k *keeper) remove(t *ticket) {
	k.mu.Lock()
	defer k.mu.Unlock()
	t.keep.gone = true
	delete(k.byID, t.ID)
	if t.keep.endAt > 0 {
		heap.Remove(&k.ends, int(t.keep.endAt)-1)
	}
	if ln := t.keep.lane; ln != nil {
		if t.keep.at > 0 {
			heap.Remove(&ln.heap, int(t.keep.at)-1)
		}
		k.reorder(ln)
	}
}

func (k *keeper) laneOf(name string) *lane {
	var id uint64
	if f := k.c.traits.Lane; f != nil {
		id = f(name)
	}
	ln := k.lanes[id]
	if ln == nil {
		ln = &lane{id: id}
		k.lanes[id] = ln
	}
	return ln
}

// ready is when the lane can send next.
func (ln *lane) ready() instant {
	if ln.flying || len(ln.heap) == 0 {
		return never
	}
	return max(ln.after, ln.heap[0].keep.due)
}

// reorder puts a lane in its place after a change, and wakes the goroutine if
// it has to look earlier than it meant to.
func (k *keeper) reorder(ln *lane) {
	if ln.at == 0 {
		heap.Push(&k.order, ln)
	} else {
		heap.Fix(&k.order, ln.at-1)
	}
	if ln.ready() < k.wake && k.flying < maxCallers {
		select {
		case k.kick <- struct{}{}:
		default:
		}
	}
	if len(ln.heap) == 0 && !ln.flying && k.c.traits.Lane != nil {
		heap.Remove(&k.order, ln.at-1)
		delete(k.lanes, ln.id)
	}
}

// run is the goroutine of the keeper; it ends with the client.
func (k *keeper) run() {
	defer close(k.stopped)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		if next := k.dispatch(); next != never {
			timer.Reset(max(0, next.sub(k.c.clock.now())))
		}
		select {
		case <-timer.C:
		case <-k.kick:
		case b := <-k.results:
			k.apply(b)
		case <-k.c.done:
			k.mu.Lock()
			n := k.flying
			k.mu.Unlock()
			for range n {
				<-k.results
			}
			return
		}
	}
}

// dispatch sends what is due and returns when to look again.
func (k *keeper) dispatch() instant {
	now := k.c.clock.now()
	k.mu.Lock()
	defer k.mu.Unlock()
	k.wake = never
	for k.flying < maxCallers && len(k.order) > 0 {
		ln := k.order[0]
		if at := ln.ready(); at > now {
			k.wake = at
			break
		}
		b := k.fill(ln, now)
		ln.flying = true
		k.flying++
		heap.Fix(&k.order, 0)
		go k.send(b)
	}
	return k.wake
}

// fill takes a batch off a lane: what is due, and what soon will be, so that
// tickets of about one age go on travelling together.
func (k *keeper) fill(ln *lane, now instant) *batch {
	b := &batch{lane: ln}
	first := ln.heap[0].TTL
	rest := len(ln.heap)
	for len(ln.heap) > 0 && len(b.tickets) < batchSize {
		t := ln.heap[0]
		if t.keep.due > now.add(min(first, t.TTL)/16) {
			break
		}
		heap.Pop(&ln.heap)
		b.tickets = append(b.tickets, t)
	}
	if batches := rest / batchSize; batches > 1 {
		// Spread the round over a sixth of the TTL; what is late goes at once.
		ln.after = now.add(first / 6 / time.Duration(batches))
		if len(ln.heap) > 0 && now.sub(ln.heap[0].keep.due) > first/6 {
			ln.after = now
		}
	}
	return b
}

// send calls the driver, on a goroutine of its own.
func (k *keeper) send(b *batch) {
	ttl := b.tickets[0].TTL
	for _, t := range b.tickets {
		ttl = min(ttl, t.TTL)
		b.refs = append(b.refs, driver.Ref{Ticket: &t.Ticket})
	}
	k.mu.Lock()
	for i, t := range b.tickets {
		b.refs[i].State = driver.Held
		if t.keep.waiting {
			b.refs[i].State = driver.Waiting
		}
	}
	k.mu.Unlock()
	ctx, cancel := context.WithTimeout(k.c.life, callLimit(ttl))
	defer cancel()
	b.sent = k.c.clock.now()
	b.places, b.err = k.c.renewAll(ctx, b.refs)
	k.results <- b
}

// apply hands the answers of a batch to their lines.
func (k *keeper) apply(b *batch) {
	var trouble error
	for i, t := range b.tickets {
		var p driver.Place
		if b.err == nil {
			p = b.places[i]
		}
		if p.Err != nil {
			trouble = p.Err
			if p.State != driver.Gone {
				p.State = 0
			}
		}
		t.line.renewed(t, p, b.sent)
	}
	k.mu.Lock()
	k.flying--
	b.lane.flying = false
	k.reorder(b.lane)
	k.mu.Unlock()
	if b.err != nil {
		trouble = b.err
	}
	if trouble != nil {
		k.c.tellTrouble(storeError("renew", "", trouble))
	}
}

// moved takes the driver's pushes.
func (k *keeper) moved(id string, p driver.Place) {
	k.mu.Lock()
	if id != "" {
		t := k.byID[id]
		k.mu.Unlock()
		if t != nil {
			t.line.pushed(t, p)
		}
		return
	}
	// A gap in the pushes: ask for everything that waits; and again for what
	// is being asked for, because the answer may be from before the gap.
	now := k.c.clock.now()
	for _, t := range k.byID {
		switch {
		case t.keep.at == 0:
			t.keep.again = true
		case t.keep.waiting:
			t.keep.due = now
			heap.Fix(&t.keep.lane.heap, int(t.keep.at)-1)
			k.reorder(t.keep.lane)
		}
	}
	k.mu.Unlock()
}
