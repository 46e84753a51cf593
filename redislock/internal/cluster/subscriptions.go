package cluster

import (
	"context"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/backoff"
	"github.com/holdfast-go/holdfast/redislock/internal/client"
	"github.com/holdfast-go/holdfast/redislock/internal/server"
	"github.com/holdfast-go/holdfast/redislock/internal/wire"
)

// subscriptions is the set of subscriptions of a cluster's driver: a channel
// for each slot in which the driver has waited, and a connection for each node
// that has such slots.
//
// Under mu, the mutexes of the source and its nodes are taken, and that of the
// cluster's life.
type subscriptions struct {
	c          *Cluster
	ctx        context.Context
	notifyCore func(string, driver.Status)

	mu      sync.Mutex
	slots   map[int]*slotSubscription
	nodes   map[*server.Driver]*nodeSubscriber
	refused chan struct{} // closed while the last answer of a node to a subscription was a refusal
}

// slotSubscription is a slot whose pushes flow, or are to flow. The mutex of
// subscriptions guards its fields.
type slotSubscription struct {
	slot    int
	channel string
	node    *nodeSubscriber // which subscribes to it
	live    chan struct{}   // closed as long as pushes flow
	missed  bool            // pushes may have been lost meanwhile
}

// nodeSubscriber keeps the subscriptions at one node.
type nodeSubscriber struct {
	all  *subscriptions
	d    *server.Driver
	kick chan struct{} // holds a value when there is work

	// Guarded by subscriptions.mu:
	todo       []*slotSubscription
	subscribed map[string]*slotSubscription // by channel
}

const (
	// slotSubscribeLimit bounds one attempt to subscribe.
	slotSubscribeLimit = 2 * time.Second
	// subscribeWait bounds how long a new waiter waits for the subscription.
	subscribeWait = 3 * time.Second
	// slotPoll is the time between two comparisons with the present owners of
	// the slots.
	slotPoll = time.Second
)

func newSubscriptions(ctx context.Context, c *Cluster, notify func(string, driver.Status)) *subscriptions {
	return &subscriptions{
		c: c, ctx: ctx, notifyCore: notify, slots: make(map[int]*slotSubscription), nodes: make(map[*server.Driver]*nodeSubscriber),
		refused: make(chan struct{}),
	}
}

func (e *subscriptions) over() bool { return e.c.life.Over() || e.ctx.Err() != nil }

func (e *subscriptions) notify(id string, p driver.Status) {
	if !e.over() {
		e.notifyCore(id, p)
	}
}

// await returns once pushes of a slot flow, after a time limit, or when a node has refused
// a subscription: then the waiter polls. It reports whether they flow now and did not
// before.
func (e *subscriptions) await(ctx context.Context, slot int) bool {
	e.mu.Lock()
	h := e.slots[slot]
	if h != nil && h.flowsLocked() {
		e.mu.Unlock()
		return false
	}
	if h == nil {
		h = &slotSubscription{slot: slot, channel: wire.ChannelOf(e.c.Channel, slot), live: make(chan struct{})}
		e.slots[slot] = h
		e.mu.Unlock()
		if !e.c.life.Begin(func() { e.assign(h) }) {
			return false
		}
		e.mu.Lock()
	}
	live, refused := h.live, e.refused
	e.mu.Unlock()
	limit := time.NewTimer(subscribeWait)
	defer limit.Stop()
	select {
	case <-live:
		return true
	case <-refused:
	case <-ctx.Done():
	case <-limit.C:
	case <-e.c.life.Done:
	case <-e.ctx.Done(): // the Watch has ended
	}
	return false
}

func (h *slotSubscription) flowsLocked() bool { return isClosed(h.live) }

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// noteAnswerLocked notes whether a node has refused a subscription, for want of a right.
func (e *subscriptions) noteAnswerLocked(err error) {
	refused := err != nil && driver.ClassOf(server.Classify(err)) == driver.Refused
	switch before := isClosed(e.refused); {
	case refused && !before:
		close(e.refused)
	case err == nil && before:
		e.refused = make(chan struct{})
	}
}

// assign gives a slot to the subscriber of the node that has the slot, as soon
// as that node is known.
func (e *subscriptions) assign(h *slotSubscription) {
	for !e.over() {
		ctx, cancel := context.WithTimeout(e.ctx, slotSubscribeLimit)
		d, err := e.c.source.owner(ctx, h.slot)
		cancel()
		if err == nil {
			e.addTo(h, d)
			return
		}
		e.c.life.Sleep(e.ctx, server.DiscoveryBackoff)
	}
}

// addTo adds a slot to the subscriber of a node.
func (e *subscriptions) addTo(h *slotSubscription, d *server.Driver) {
	e.mu.Lock()
	defer e.mu.Unlock()
	p := e.nodes[d]
	if p == nil {
		p = &nodeSubscriber{all: e, d: d, kick: make(chan struct{}, 1), subscribed: make(map[string]*slotSubscription)}
		e.nodes[d] = p
		if !e.c.life.Begin(p.run) {
			return
		}
	}
	h.node = p
	p.todo = append(p.todo, h)
	p.wake()
}

func (p *nodeSubscriber) wake() {
	select {
	case p.kick <- struct{}{}:
	default:
	}
}

// stopLocked notes that a slot's pushes do not flow.
func (h *slotSubscription) stopLocked() {
	if h.flowsLocked() {
		h.live = make(chan struct{})
	}
	h.missed = true
}

// run keeps the subscriptions until no slot is left.
func (p *nodeSubscriber) run() {
	var ear client.Subscriber
	defer func() {
		if ear != nil {
			ear.Close()
		}
	}()
	tick := time.NewTicker(slotPoll)
	defer tick.Stop()
	retry := backoff.Backoff{First: server.SubscribeRetryMin, Last: server.SubscribeRetryMax}
	for !p.all.over() {
		work := p.takeWork()
		if len(work) == 0 && p.removeIfIdle() {
			return
		}
		if len(work) > 0 && ear == nil {
			ear = p.d.ListenPushes(p.all.notify, p.onDropped)
		}
		if err := p.subscribe(ear, work); err != nil {
			ear.Close()
			ear = nil
			p.onLost()
			p.all.c.source.refresh(p.d)
			p.all.c.life.Sleep(p.all.ctx, retry.Next())
			continue
		}
		if len(work) > 0 {
			retry.Reset()
		}
		var lost <-chan struct{}
		if ear != nil {
			lost = ear.Lost()
		}
		select {
		case <-p.kick:
		case <-tick.C:
		case <-lost:
			ear.Close()
			ear = nil
			p.onLost()
			p.all.c.source.refresh(p.d)
		case <-p.all.c.life.Done:
		case <-p.all.ctx.Done():
		}
	}
}

// takeWork returns the slots to subscribe to at this node, and gives slots that
// have moved to the subscribers of their nodes.
func (p *nodeSubscriber) takeWork() (work []*slotSubscription) {
	p.all.mu.Lock()
	var away []*slotSubscription
	for channel, h := range p.subscribed {
		if !p.owns(h) {
			h.stopLocked()
			delete(p.subscribed, channel)
			away = append(away, h)
		}
	}
	for _, h := range p.todo {
		if p.owns(h) {
			work = append(work, h)
		} else {
			away = append(away, h)
		}
	}
	p.todo = nil
	p.all.mu.Unlock()
	for _, h := range away {
		p.all.c.life.Begin(func() { p.all.assign(h) })
	}
	return work
}

// owns reports whether the node has a slot, as far as is known without a
// request.
func (p *nodeSubscriber) owns(h *slotSubscription) bool {
	ctx, cancel := context.WithCancel(context.Background())
	cancel() // only assign connects
	d, err := p.all.c.source.owner(ctx, h.slot)
	return err == nil && d == p.d
}

// removeIfIdle reports whether p has nothing to do. If so, it removes p, which
// must not be used again.
func (p *nodeSubscriber) removeIfIdle() bool {
	p.all.mu.Lock()
	defer p.all.mu.Unlock()
	if len(p.subscribed) > 0 || len(p.todo) > 0 {
		return false
	}
	delete(p.all.nodes, p.d)
	return true
}

// subscribe makes the pushes of slots flow. After an error, the slots that are
// left are to be subscribed anew.
func (p *nodeSubscriber) subscribe(ear client.Subscriber, work []*slotSubscription) error {
	var missed bool
	for i, h := range work {
		ctx, cancel := context.WithTimeout(p.all.ctx, slotSubscribeLimit)
		err := ear.Add(ctx, h.channel)
		cancel()
		if slot, addr, ok := wire.MovedTo(err); ok {
			p.all.c.source.noteMoved(p.d, slot, addr)
			p.all.c.life.Begin(func() { p.all.assign(h) })
			continue
		}
		p.all.mu.Lock()
		p.all.noteAnswerLocked(err)
		if err != nil {
			p.todo = append(p.todo, work[i:]...)
			p.all.mu.Unlock()
			return err
		}
		p.subscribed[h.channel] = h
		missed = missed || h.missed
		h.missed = false
		if !h.flowsLocked() {
			close(h.live)
		}
		p.all.mu.Unlock()
	}
	if missed {
		p.all.notify("", driver.Status{})
	}
	return nil
}

// onLost notes that the connection is lost.
func (p *nodeSubscriber) onLost() {
	p.all.mu.Lock()
	defer p.all.mu.Unlock()
	for channel, h := range p.subscribed {
		h.stopLocked()
		delete(p.subscribed, channel)
		p.todo = append(p.todo, h)
	}
	for _, h := range p.todo {
		h.missed = true
	}
}

// onDropped notes that the node no longer serves a channel, because its slot
// has moved.
func (p *nodeSubscriber) onDropped(channel string) {
	p.all.mu.Lock()
	if h := p.subscribed[channel]; h != nil {
		h.stopLocked()
		delete(p.subscribed, channel)
		p.todo = append(p.todo, h)
	}
	p.all.mu.Unlock()
	p.all.c.source.refresh(nil)
	p.wake()
}

// recheckOwners makes all subscribers compare their slots with the present
// owners.
func (e *subscriptions) recheckOwners() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, p := range e.nodes {
		p.wake()
	}
}
