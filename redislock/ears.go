package redislock

import (
	"context"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/redislock/internal/link"
)

// ears are the subscriptions of a driver of a cluster: a channel for each slot
// in which it has waited, and a connection for each node that has such slots.
type ears struct {
	c     *Cluster
	ctx   context.Context
	moved func(string, driver.Place)

	mu    sync.Mutex
	slots map[int]*heeded
	posts map[*Driver]*post
}

// heeded is a slot whose pushes are heard, or shall be.
type heeded struct {
	slot    int
	channel string
	post    *post         // where
	live    chan struct{} // closed as long as pushes flow
	missed  bool          // something may have been missed meanwhile
}

// post listens at one node.
type post struct {
	e    *ears
	d    *Driver
	kick chan struct{} // holds a value when there is something to look at

	// Guarded by ears.mu:
	todo []*heeded
	have map[string]*heeded // by channel
}

const (
	// earLimit bounds one try to subscribe.
	earLimit = 2 * time.Second
	// settled is how long somebody who begins to wait waits for that.
	settled = 3 * time.Second
	// stroll is between two looks at who has the slots now.
	stroll = time.Second
)

func newEars(ctx context.Context, c *Cluster, moved func(string, driver.Place)) *ears {
	return &ears{c: c, ctx: ctx, moved: moved, slots: make(map[int]*heeded), posts: make(map[*Driver]*post)}
}

func (e *ears) over() bool { return e.c.over() || e.ctx.Err() != nil }

func (e *ears) tell(id string, p driver.Place) {
	if !e.over() {
		e.moved(id, p)
	}
}

// want returns once pushes of a slot flow, or after a while, and says whether
// they did not flow before.
func (e *ears) want(ctx context.Context, slot int) bool {
	e.mu.Lock()
	h := e.slots[slot]
	if h != nil && h.flows() {
		e.mu.Unlock()
		return false
	}
	if h == nil {
		h = &heeded{slot: slot, channel: channelOf(e.c.channel, slot), live: make(chan struct{})}
		e.slots[slot] = h
		e.mu.Unlock()
		if !e.c.begin(func() { e.assign(h) }) {
			return false
		}
		e.mu.Lock()
	}
	live := h.live
	e.mu.Unlock()
	limit := time.NewTimer(settled)
	defer limit.Stop()
	select {
	case <-live:
		return true
	case <-ctx.Done():
	case <-limit.C:
	case <-e.c.done:
	}
	return false
}

func (h *heeded) flows() bool {
	select {
	case <-h.live:
		return true
	default:
		return false
	}
}

// assign gives a slot to the post at the node that has it, as soon as that is
// known.
func (e *ears) assign(h *heeded) {
	for !e.over() {
		ctx, cancel := context.WithTimeout(e.ctx, earLimit)
		d, err := e.c.source.owner(ctx, h.slot)
		cancel()
		if err == nil {
			e.give(h, d)
			return
		}
		select {
		case <-e.c.done:
		case <-e.ctx.Done():
		case <-time.After(lull):
		}
	}
}

// give lets the post at a node listen for a slot.
func (e *ears) give(h *heeded, d *Driver) {
	e.mu.Lock()
	defer e.mu.Unlock()
	p := e.posts[d]
	if p == nil {
		p = &post{e: e, d: d, kick: make(chan struct{}, 1), have: make(map[string]*heeded)}
		e.posts[d] = p
		if !e.c.begin(p.run) {
			return
		}
	}
	h.post = p
	p.todo = append(p.todo, h)
	p.wake()
}

func (p *post) wake() {
	select {
	case p.kick <- struct{}{}:
	default:
	}
}

// mute notes that a slot's pushes do not flow. The caller has the lock.
func (h *heeded) mute() {
	if h.flows() {
		h.live = make(chan struct{})
	}
	h.missed = true
}

// run listens until there is nothing left to listen for.
func (p *post) run() {
	const least, most = 20 * time.Millisecond, time.Second
	var ear link.Ear
	defer func() {
		if ear != nil {
			ear.Close()
		}
	}()
	tick := time.NewTicker(stroll)
	defer tick.Stop()
	wait := least
	for !p.e.over() {
		work := p.sort()
		if len(work) == 0 && p.idle() {
			return
		}
		if len(work) > 0 && ear == nil {
			ear = p.d.listen(p.heard, p.dropped)
		}
		if err := p.subscribe(ear, work); err != nil {
			ear.Close()
			ear = nil
			p.lose()
			p.e.c.source.doubt(p.d)
			p.sleep(wait)
			wait = min(2*wait, most)
			continue
		}
		if len(work) > 0 {
			wait = least
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
			p.lose()
			p.e.c.source.doubt(p.d)
		case <-p.e.c.done:
		case <-p.e.ctx.Done():
		}
	}
}

func (p *post) sleep(d time.Duration) {
	select {
	case <-time.After(d):
	case <-p.e.c.done:
	case <-p.e.ctx.Done():
	}
}

// sort returns what is to be subscribed here, and gives slots that others have
// by now to their posts.
func (p *post) sort() (work []*heeded) {
	p.e.mu.Lock()
	var away []*heeded
	for channel, h := range p.have {
		if !p.owns(h) {
			h.mute()
			delete(p.have, channel)
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
	p.e.mu.Unlock()
	for _, h := range away {
		p.e.c.begin(func() { p.e.assign(h) })
	}
	return work
}

// owns says whether the node has a slot, as far as is known without asking.
func (p *post) owns(h *heeded) bool {
	ctx, cancel := context.WithCancel(context.Background())
	cancel() // to connect is for assign
	d, err := p.e.c.source.owner(ctx, h.slot)
	return err == nil && d == p.d
}

// idle says that the post has nothing to do, after which it is not to be used.
func (p *post) idle() bool {
	p.e.mu.Lock()
	defer p.e.mu.Unlock()
	if len(p.have) > 0 || len(p.todo) > 0 {
		return false
	}
	delete(p.e.posts, p.d)
	return true
}

// subscribe makes the pushes of slots flow. On an error, those that are left
// are to be done anew.
func (p *post) subscribe(ear link.Ear, work []*heeded) error {
	var missed bool
	for i, h := range work {
		ctx, cancel := context.WithTimeout(p.e.ctx, earLimit)
		err := ear.Add(ctx, h.channel)
		cancel()
		if slot, addr, ok := movedTo(err); ok {
			p.e.c.source.moved(p.d, slot, addr)
			p.e.c.begin(func() { p.e.assign(h) })
			continue
		}
		p.e.mu.Lock()
		if err != nil {
			p.todo = append(p.todo, work[i:]...)
			p.e.mu.Unlock()
			return err
		}
		p.have[h.channel] = h
		missed = missed || h.missed
		h.missed = false
		if !h.flows() {
			close(h.live)
		}
		p.e.mu.Unlock()
	}
	if missed {
		p.e.tell("", driver.Place{})
	}
	return nil
}

// lose notes that the connection is gone.
func (p *post) lose() {
	p.e.mu.Lock()
	defer p.e.mu.Unlock()
	for channel, h := range p.have {
		h.mute()
		delete(p.have, channel)
		p.todo = append(p.todo, h)
	}
	for _, h := range p.todo {
		h.missed = true
	}
}

// heard takes a message.
func (p *post) heard(message string) {
	if id, place, err := parsePush(message); err == nil {
		p.d.pushed(id, place, p.e.tell)
	}
}

// dropped notes that the node serves a channel no more: its slot has moved.
func (p *post) dropped(channel string) {
	p.e.mu.Lock()
	if h := p.have[channel]; h != nil {
		h.mute()
		delete(p.have, channel)
		p.todo = append(p.todo, h)
	}
	p.e.mu.Unlock()
	p.e.c.source.doubt(nil)
	p.wake()
}

// look makes all posts look at who has the slots now.
func (e *ears) look() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, p := range e.posts {
		p.wake()
	}
}
